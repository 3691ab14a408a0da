package dsync_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"dsync-client"
)

func TestSemaphoreHasPermitsLanesAndIndexes(t *testing.T) {
	withEach(t, func(t *testing.T, s *server, client *dsync.Client) {
		semaphore := dsync.NewSemaphore(client, "s", dsync.Limit(3), dsync.Lane("a"), dsync.LaneLimit(2), dsync.Index())
		if free := must[int](t)(dsync.NewSemaphore(client, "unused").Available(background)); free != -1 {
			t.Fatal("nobody knows how many are free", free)
		}
		if free := must[int](t)(semaphore.Available(background)); free != 3 {
			t.Fatal(free)
		}
		first := must[*dsync.Hold](t)(semaphore.Acquire(background))
		second := must[*dsync.Hold](t)(semaphore.TryAcquire(background))
		if first.Index() != 0 || second.Index() != 1 {
			t.Fatal(first.Index(), second.Index())
		}
		if _, err := semaphore.TryAcquire(background); !errors.Is(err, dsync.ErrNotAcquired) {
			t.Fatal(err)
		}
		if free := must[int](t)(semaphore.Available(background)); free != 1 {
			t.Fatal(free)
		}
		two := dsync.NewSemaphore(client, "s", dsync.Limit(3), dsync.Permits(2))
		if isLocked := must[bool](t)(two.Locked(background)); !isLocked {
			t.Fatal("two permits are not free")
		}
	})
}

func TestGroupWaitsForItsMembers(t *testing.T) {
	withEach(t, func(t *testing.T, s *server, client *dsync.Client) {
		group := dsync.NewGroup(client, "g", dsync.Limit(2))
		if owed := must[int](t)(group.Expect(background, 3)); owed != 3 {
			t.Fatal(owed)
		}
		finished := make(chan dsync.Round)
		go func() { finished <- must[dsync.Round](t)(group.Wait(background)) }()
		failed := errors.New("mine")
		if err := group.Do(background, func(context.Context) error { return failed }); !errors.Is(err, failed) {
			t.Fatal(err)
		}
		for i := 0; i < 2; i++ {
			none(t, group.Do(background, func(context.Context) error { return nil }))
		}
		ctx, cancel := context.WithTimeout(background, 200*time.Millisecond)
		defer cancel()
		if _, err := group.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal("the member that failed is still owed", err)
		}
		member := must[*dsync.Member](t)(group.Add(background))
		none(t, member.Done(background))
		if round := <-finished; round != (dsync.Round{Done: 3}) {
			t.Fatal(round)
		}
	})
}

func TestWaitForARemovedGroupFails(t *testing.T) {
	s, client := start(t)
	group := dsync.NewGroup(client, "g")
	must[int](t)(group.Expect(background, 1))
	failed := make(chan error)
	go func() {
		_, err := group.Wait(background)
		failed <- err
	}()
	eventually(t, "a waiter", func() bool { return s.waiters("DWG", "g") == "1" })
	s.ask("DEL", "g")
	if err := <-failed; err == nil || !strings.Contains(err.Error(), "removed") {
		t.Fatal(err)
	}
}

func TestLostMembershipIsNotDone(t *testing.T) {
	s, client := start(t)
	member := must[*dsync.Member](t)(dsync.NewGroup(client, "g").Add(background))
	s.ask("DWG.REVOKE", "g", member.Fence())
	if err := member.Done(background); !errors.Is(err, dsync.ErrHoldLost) {
		t.Fatal(err)
	}
}

type invoice struct{ Number int }

func TestWorkIsDoneOnce(t *testing.T) {
	withEach(t, func(t *testing.T, s *server, client *dsync.Client) {
		var runs atomic.Int32
		once := dsync.NewOnce[invoice](client, "w", dsync.Forever())
		if _, isDone, err := once.Get(background); isDone || err != nil {
			t.Fatal(isDone, err)
		}
		work := func(context.Context) (invoice, error) {
			runs.Add(1)
			return invoice{7}, nil
		}
		results := make(chan invoice)
		for i := 0; i < 5; i++ {
			go func() { results <- must[invoice](t)(once.Do(background, work)) }()
		}
		for i := 0; i < 5; i++ {
			if result := <-results; result.Number != 7 {
				t.Fatal(result)
			}
		}
		result, isDone, err := once.Get(background)
		if runs.Load() != 1 || result.Number != 7 || !isDone || err != nil {
			t.Fatal(runs.Load(), result, isDone, err)
		}
		if kept := s.ask("DONCE.INFO", "w"); !strings.Contains(kept, "kept-until-unix-ms <nil>") {
			t.Fatal(kept)
		}
		if _, _, err := dsync.NewOnce[int](client, "w").Get(background); err == nil {
			t.Fatal("a result of another type")
		}
	})
}

func TestFailedWorkIsGivenUp(t *testing.T) {
	_, client := start(t)
	once := dsync.NewOnce[string](client, "w", dsync.MaxAttempts(2))
	mine := errors.New("mine")
	for attempt := 1; attempt <= 2; attempt++ {
		_, err := once.Do(background, func(ctx context.Context) (string, error) {
			if got := dsync.HoldOf(ctx).Attempt(); got != attempt {
				t.Error(got)
			}
			return "", mine
		})
		if !errors.Is(err, mine) {
			t.Fatal(err)
		}
	}
	_, err := once.Do(background, func(context.Context) (string, error) { t.Error("a third"); return "", nil })
	var failed *dsync.WorkFailed
	if !errors.As(err, &failed) || failed.Reason != "mine" || failed.Attempts != 2 {
		t.Fatal(err)
	}
}

func TestCallGoesOnUntilItsAttemptsAreOver(t *testing.T) {
	_, client := start(t)
	mine := errors.New("no disk")
	for failures, want := range map[int]int{2: 3, 9: 3} {
		once := dsync.NewOnce[int](client, fmt.Sprint(failures), dsync.MaxAttempts(3), dsync.UntilDone())
		runs := 0
		result, err := once.Do(background, func(context.Context) (int, error) {
			if runs++; runs <= failures {
				return 0, mine
			}
			return runs, nil
		})
		var failed *dsync.WorkFailed
		if isDone := err == nil && result == want; runs != want || isDone != (failures < 3) {
			t.Error(failures, runs, result, err)
		} else if !isDone && (!errors.As(err, &failed) || failed.Attempts != 3 || !errors.Is(err, mine)) {
			t.Error(err)
		}
	}
}

func TestCallThatGoesOnLetsThoseWhoWaitBeFirst(t *testing.T) {
	s, client := start(t)
	options := []dsync.OnceOption{dsync.MaxAttempts(9), dsync.UntilDone()}
	runs := 0
	result := must[string](t)(dsync.NewOnce[string](client, "w", options...).Do(background, func(context.Context) (string, error) {
		if runs++; runs > 1 {
			return "mine", nil
		}
		go func() {
			_, _ = dsync.NewOnce[string](client, "w").Do(background, func(context.Context) (string, error) { return "theirs", nil })
		}()
		eventually(t, "a waiter", func() bool { return s.waiters("DONCE", "w") == "1" })
		return "", errors.New("mine")
	}))
	if runs != 1 || result != "theirs" {
		t.Fatal(runs, result)
	}
}

func TestDeadlineThatTheWorkDoesNotMeetIsAFailedAttempt(t *testing.T) {
	_, client := start(t)
	once := dsync.NewOnce[string](client, "w", dsync.MaxAttempts(2), dsync.UntilDone())
	runs := 0
	for call := 0; call < 4; call++ {
		ctx, cancel := context.WithTimeout(background, 300*time.Millisecond)
		_, err := once.Do(ctx, func(ctx context.Context) (string, error) {
			runs++
			<-ctx.Done()
			return "", ctx.Err()
		})
		cancel()
		if errors.Is(err, dsync.ErrWorkFailed) != (call >= 2) {
			t.Error(call, err)
		}
	}
	if runs != 2 {
		t.Fatal(runs)
	}
}

func TestPanicIsAFailedAttempt(t *testing.T) {
	_, client := start(t)
	once := dsync.NewOnce[string](client, "w", dsync.MaxAttempts(1))
	func() {
		defer func() { _ = recover() }()
		_, _ = once.Do(background, func(context.Context) (string, error) { panic("oh") })
	}()
	_, err := once.Begin(background)
	if !errors.Is(err, dsync.ErrWorkFailed) || !strings.Contains(err.Error(), "at attempt 1:") {
		t.Fatal(err)
	}
}

func TestCancelledWorkCountsNoAttempt(t *testing.T) {
	_, client := start(t)
	once := dsync.NewOnce[string](client, "w", dsync.MaxAttempts(1))
	ctx, cancel := context.WithCancel(background)
	_, err := once.Do(ctx, func(ctx context.Context) (string, error) {
		cancel()
		return "", ctx.Err()
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	run := must[*dsync.Run[string]](t)(once.Begin(background))
	if run.Attempt() != 1 || run.IsDone() {
		t.Fatal(run.Attempt())
	}
	none(t, run.Done(background, "r"))
	again := must[*dsync.Run[string]](t)(once.Begin(background))
	if !again.IsDone() || again.Result() != "r" {
		t.Fatal(again.Result())
	}
}

func TestResultThatCannotBeStoredIsAFailedAttempt(t *testing.T) {
	s, client := start(t)
	once := dsync.NewOnce[any](client, "w", dsync.MaxAttempts(1))
	_, err := once.Do(background, func(context.Context) (any, error) { return func() {}, nil })
	if err == nil || errors.Is(err, dsync.ErrHoldLost) {
		t.Fatal(err)
	}
	if info := s.ask("DONCE.INFO", "w"); !strings.Contains(info, "attempts 1") || !strings.Contains(info, "cannot be stored") {
		t.Fatal(info)
	}
}

func TestAllOfTakesSeveralKeysInTheOrderOfTheirNames(t *testing.T) {
	s, client := start(t)
	a, b := dsync.NewLock(client, "a"), dsync.NewSemaphore(client, "b", dsync.Limit(1))
	both := must[*dsync.Holds](t)(dsync.AllOf(background, b, a))
	if keys := both.Holds(); keys[0].Key() != "b" || keys[1].Key() != "a" || keys[1].Fence() > keys[0].Fence() {
		t.Fatal(keys)
	}
	s.ask("DEL", "a")
	none(t, errorOf(both.Holds()[1].Renew(background, 0)))
	<-both.Context().Done()
	if !errors.Is(context.Cause(both.Context()), dsync.ErrHoldLost) || both.Err() == nil {
		t.Fatal(context.Cause(both.Context()))
	}
	if err := both.Release(background); !errors.Is(err, dsync.ErrHoldLost) {
		t.Fatal(err)
	}
	s.ask("DSEM.ACQUIRE", "b", "LIMIT", 1, "PX", 60000)
	try := dsync.NewSemaphore(client, "b", dsync.Limit(1), dsync.Wait(0))
	if _, err := dsync.AllOf(background, a, try); !errors.Is(err, dsync.ErrNotAcquired) {
		t.Fatal(err)
	}
	if info := s.ask("DLOCK.INFO", "a"); info != "<nil>" {
		t.Fatal(info)
	}
	if _, err := dsync.AllOf(background, a, dsync.NewLock(client, "a")); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Fatal(err)
	}
}

// errorOf returns nil for the error that is expected.
func errorOf(err error) error {
	if errors.Is(err, dsync.ErrHoldLost) {
		return nil
	}
	return errors.New("no loss")
}
