package dsync_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"dsync-client"
)

func TestLockIsHeldByOne(t *testing.T) {
	withEach(t, func(t *testing.T, s *server, client *dsync.Client) {
		lock := dsync.NewLock(client, "k", dsync.Owner("web-1"))
		hold := must[*dsync.Hold](t)(lock.Acquire(background))
		if hold.Key() != "k" || hold.Fence() == 0 || hold.Left() <= 0 || hold.Err() != nil || hold.Index() != -1 {
			t.Fatal(hold)
		}
		if isLocked := must[bool](t)(lock.Locked(background)); !isLocked {
			t.Fatal("free")
		}
		_, err := lock.TryAcquire(background)
		var refused *dsync.NotAcquired
		if !errors.As(err, &refused) || !errors.Is(err, dsync.ErrNotAcquired) || len(refused.Holders) != 1 {
			t.Fatal(err)
		}
		if holder := refused.Holders[0]; holder.Owner != "web-1" || holder.Fence != hold.Fence() {
			t.Fatal(holder)
		}
		none(t, hold.Release(background))
		none(t, hold.Release(background))
		if holders := must[[]dsync.Holder](t)(lock.Holders(background)); len(holders) != 0 || hold.Left() != 0 {
			t.Fatal(holders, hold)
		}
		if hold.Context().Err() != nil {
			t.Fatal("a release is no loss")
		}
	})
}

func TestWaitersAreServedInTheirOrder(t *testing.T) {
	withEach(t, func(t *testing.T, s *server, client *dsync.Client) {
		lock := dsync.NewLock(client, "k")
		first := must[*dsync.Hold](t)(lock.Acquire(background))
		served := make(chan int)
		var all sync.WaitGroup
		defer all.Wait()
		for number := 1; number <= 3; number++ {
			all.Add(1)
			go func(number int) {
				defer all.Done()
				err := lock.Do(background, func(context.Context) error { served <- number; return nil })
				if err != nil {
					t.Error(err)
				}
			}(number)
			eventually(t, "a waiter more", func() bool { return s.waiters("DLOCK", "k") == fmt.Sprint(number) })
		}
		none(t, first.Release(background))
		for number := 1; number <= 3; number++ {
			if got := <-served; got != number {
				t.Fatalf("%d before %d", got, number)
			}
		}
	})
}

func TestCancelledWaitLeavesTheQueue(t *testing.T) {
	withEach(t, func(t *testing.T, s *server, client *dsync.Client) {
		s.ask("DLOCK.ACQUIRE", "k", "TOKEN", "mine", "PX", 60000)
		why := errors.New("not needed any more")
		ctx, cancel := context.WithCancelCause(background)
		failed := make(chan error)
		go func() {
			_, err := dsync.NewLock(client, "k").Acquire(ctx)
			failed <- err
		}()
		eventually(t, "a waiter", func() bool { return s.waiters("DLOCK", "k") == "1" })
		cancel(why)
		if err := <-failed; !errors.Is(err, why) || errors.Is(err, dsync.ErrNotAcquired) {
			t.Fatal(err)
		}
		if waiters := s.waiters("DLOCK", "k"); waiters != "0" {
			t.Fatal(waiters)
		}
	})
}

func TestDeadlineOfTheContextEndsTheWait(t *testing.T) {
	s, client := start(t)
	s.ask("DLOCK.ACQUIRE", "k", "TOKEN", "mine", "PX", 60000, "OWNER", "ops")
	ctx, cancel := context.WithTimeout(background, 300*time.Millisecond)
	defer cancel()
	_, err := dsync.NewLock(client, "k").Acquire(ctx)
	if !errors.Is(err, dsync.ErrNotAcquired) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "ops") {
		t.Fatal(err)
	}
	if waiters := s.waiters("DLOCK", "k"); waiters != "0" {
		t.Fatal(waiters)
	}
}

func TestClosedClientLeavesTheQueue(t *testing.T) {
	withEach(t, func(t *testing.T, s *server, client *dsync.Client) {
		s.ask("DLOCK.ACQUIRE", "k", "TOKEN", "mine", "PX", 60000)
		failed := make(chan error)
		go func() {
			_, err := dsync.NewLock(client, "k").Acquire(background)
			failed <- err
		}()
		eventually(t, "a waiter", func() bool { return s.waiters("DLOCK", "k") == "1" })
		client.Close()
		if err := <-failed; !errors.Is(err, dsync.ErrClosed) {
			t.Fatal(err)
		}
		if waiters := s.waiters("DLOCK", "k"); waiters != "0" {
			t.Fatal(waiters)
		}
	})
}

func TestLossCancelsTheWorkWithItsCause(t *testing.T) {
	withEach(t, func(t *testing.T, s *server, client *dsync.Client) {
		var cause, inWork error
		err := dsync.NewLock(client, "k", dsync.Lease(time.Second)).Do(background, func(ctx context.Context) error {
			hold := dsync.HoldOf(ctx)
			s.ask("DEL", "k")
			<-ctx.Done()
			<-hold.Context().Done()
			cause, inWork = context.Cause(ctx), hold.Err()
			return nil
		})
		var lost *dsync.HoldLost
		if !errors.As(err, &lost) || lost.Key != "k" || !errors.Is(cause, dsync.ErrHoldLost) || inWork == nil {
			t.Fatal(err, cause, inWork)
		}
	})
}

func TestErrorOfTheWorkComesWithTheLoss(t *testing.T) {
	s, client := start(t)
	mine := errors.New("mine")
	err := dsync.NewLock(client, "k").Do(background, func(context.Context) error {
		s.ask("DEL", "k")
		return mine
	})
	if !errors.Is(err, mine) || !errors.Is(err, dsync.ErrHoldLost) {
		t.Fatal(err)
	}
}

func TestPanicOfTheWorkReleases(t *testing.T) {
	s, client := start(t)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is swallowed")
			}
		}()
		_ = dsync.NewLock(client, "k").Do(background, func(context.Context) error { panic("oh") })
	}()
	if info := s.ask("DLOCK.INFO", "k"); info != "<nil>" {
		t.Fatal(info)
	}
}

func TestReleaseUnderAnEndedContextReleases(t *testing.T) {
	withEach(t, func(t *testing.T, s *server, client *dsync.Client) {
		ctx, cancel := context.WithCancel(background)
		hold := must[*dsync.Hold](t)(dsync.NewLock(client, "k").Acquire(ctx))
		cancel()
		if hold.Context().Err() != nil {
			t.Fatal("the context of a request is not that of its hold")
		}
		none(t, hold.Release(ctx))
		if info := s.ask("DLOCK.INFO", "k"); info != "<nil>" {
			t.Fatal(info)
		}
	})
}

func TestLeaseIsRenewedWithAnotherLength(t *testing.T) {
	s, client := start(t)
	hold := must[*dsync.Hold](t)(dsync.NewLock(client, "k", dsync.Lease(time.Minute)).Acquire(background))
	none(t, hold.Renew(background, 4*time.Second))
	if left := hold.Left(); left > 4*time.Second {
		t.Fatal(left)
	}
	// It is renewed at each third of the new lease from now on.
	select {
	case <-hold.Context().Done():
		t.Fatal(hold.Err())
	case <-time.After(6 * time.Second):
	}
	none(t, hold.Renew(background, time.Hour))
	if left := hold.Left(); left < time.Minute {
		t.Fatal(left)
	}
	s.ask("DEL", "k")
	if err := hold.Renew(background, 0); !errors.Is(err, dsync.ErrHoldLost) {
		t.Fatal(err)
	}
}

func TestLengthThatTheServerRefusesDoesNotCount(t *testing.T) {
	_, client := start(t)
	hold := must[*dsync.Hold](t)(dsync.NewLock(client, "k", dsync.Lease(time.Second)).Acquire(background))
	if err := hold.Renew(background, 48*time.Hour); err == nil || !strings.Contains(err.Error(), "max-lease-ms") {
		t.Fatal(err)
	}
	select {
	case <-hold.Context().Done():
		t.Fatal(hold.Err())
	case <-time.After(3 * time.Second):
	}
}

func TestHoldIsLostAtItsMaxHold(t *testing.T) {
	_, client := start(t)
	lock := dsync.NewLock(client, "k", dsync.Lease(600*time.Millisecond), dsync.MaxHold(1500*time.Millisecond))
	begun := time.Now()
	hold := must[*dsync.Hold](t)(lock.Acquire(background))
	<-hold.Context().Done()
	if took := time.Since(begun); took < time.Second || !strings.Contains(hold.Err().Error(), "MaxHold") {
		t.Fatal(took, hold.Err())
	}
}

func TestForgottenHoldEndsAndOneInAContextDoesNot(t *testing.T) {
	s, client := start(t)
	keep := func(key string) context.Context {
		hold := must[*dsync.Hold](t)(dsync.NewLock(client, key, dsync.Lease(time.Second)).Acquire(background))
		type name struct{}
		return context.WithValue(hold.Context(), name{}, "any derived context")
	}
	keep("forgotten")
	kept := keep("kept")
	both := must[*dsync.Holds](t)(dsync.AllOf(background, dsync.NewLock(client, "a"), dsync.NewLock(client, "b")))
	merged := both.Context()
	if hold := dsync.HoldOf(merged); hold != both.Holds()[0] {
		t.Fatal(hold)
	}
	both = nil
	eventually(t, "the end of a hold that nobody has", func() bool {
		runtime.GC()
		return s.ask("DLOCK.INFO", "forgotten") == "<nil>"
	})
	if s.ask("DLOCK.INFO", "kept") == "<nil>" || kept.Err() != nil || merged.Err() != nil {
		t.Fatal(context.Cause(kept), context.Cause(merged))
	}
	runtime.KeepAlive(kept)
	runtime.KeepAlive(merged)
}

// What a leader does: it serves, and waits for the loss. Nothing of it refers to the hold then.
func TestForgottenHoldIsToldBeforeTheNextHasIt(t *testing.T) {
	s, client := start(t)
	lease := dsync.Lease(1500 * time.Millisecond)
	type name struct{}
	lock := func(key string) *dsync.Hold {
		return must[*dsync.Hold](t)(dsync.NewLock(client, key, lease).Acquire(background))
	}
	for key, told := range map[string]<-chan struct{}{
		"context": lock("context").Context().Done(),
		"derived": context.WithValue(lock("derived").Context(), name{}, 1).Done(),
		"all":     must[*dsync.Holds](t)(dsync.AllOf(background, dsync.NewLock(client, "all", lease))).Context().Done(),
		"member":  must[*dsync.Member](t)(dsync.NewGroup(client, "member", dsync.Limit(1), lease).Add(background)).Context().Done(),
		"run":     must[*dsync.Run[int]](t)(dsync.NewOnce[int](client, "run", lease).Begin(background)).Context().Done(),
	} {
		t.Run(key, func(t *testing.T) {
			eventually(t, "nobody holds it", func() bool {
				runtime.GC()
				family := map[string]string{"member": "DWG", "run": "DONCE"}[key]
				if family == "" {
					family = "DLOCK"
				}
				return !strings.Contains(s.ask(family+".INFO", key), "lease-left-ms")
			})
			select {
			case <-told:
			default:
				t.Error("the next one can have it, and the loss was not told")
			}
		})
	}
}

func TestSharedHoldsAreTogether(t *testing.T) {
	_, client := start(t)
	lock := dsync.NewLock(client, "k", dsync.Shared())
	must[*dsync.Hold](t)(lock.Acquire(background))
	must[*dsync.Hold](t)(lock.TryAcquire(background))
	if _, err := dsync.NewLock(client, "k").TryAcquire(background); !errors.Is(err, dsync.ErrNotAcquired) {
		t.Fatal(err)
	}
}
