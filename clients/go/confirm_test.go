package dsync

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"
)

// script is a server that gives the answers of a test, and keeps what was asked: one line for each write.
type script struct {
	mu      sync.Mutex
	asked   []string
	answers [][]any
	// Delay is that of each answer.
	delay time.Duration
}

func (s *script) find(context.Context, string) (Node, error) {
	return Node{Name: "server", Connect: func(context.Context) (Conn, error) { return newScriptConn(s), nil }}, nil
}

type scriptConn struct {
	*script
	closing sync.Once
	closed  chan struct{}
}

func newScriptConn(s *script) *scriptConn { return &scriptConn{script: s, closed: make(chan struct{})} }

func (c *scriptConn) Close() error {
	c.closing.Do(func() { close(c.closed) })
	return nil
}

func (c *scriptConn) Address() string { return "server" }

func (c *scriptConn) Interrupter() func() { return func() { c.Close() } }

func spelled(command []any) string { return strings.TrimSpace(fmt.Sprintln(command...)) }

// silence is what comes from then on: no answer until the connection is closed.
var silence = []any{errors.New("silence")}

// Do answers with the next answers. An error among them breaks the connection.
func (c *scriptConn) Do(commands ...[]any) ([]any, error) {
	var line []string
	for _, command := range commands {
		line = append(line, spelled(command))
	}
	time.Sleep(c.delay)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, strings.Join(line, " | "))
	if len(c.answers) == 0 {
		return nil, Final(errors.New("nothing more"))
	}
	next := c.answers[0]
	if next[0] == silence[0] {
		c.mu.Unlock()
		<-c.closed
		c.mu.Lock()
		return nil, io.EOF
	}
	c.answers = c.answers[1:]
	for i, reply := range next {
		if _, isReply := reply.(ReplyError); isReply {
			continue
		}
		if err, isError := reply.(error); isError {
			return next[:i], err
		}
	}
	return next, nil
}

// play asks a server that answers so for the confirmation of a command.
func play(c confirmation, answers ...[]any) (*script, []any, error) {
	s := &script{answers: answers}
	replies, err := c.perform(context.Background(), &session{conn: newScriptConn(s)}, now()+time.Minute, []any{"RENEW"})
	return s, replies, err
}

func TestConfirmationsGoBehindTheirCommand(t *testing.T) {
	within := 500 * time.Millisecond
	primary := []any{"master", int64(9), []any{[]any{}, []any{}}}
	one, zero := int64(1), int64(0)
	for _, row := range []struct {
		name         string
		confirm      confirmation
		answers      [][]any
		asked        string
		have, wanted int
	}{
		{"none", confirmation{}, [][]any{{one}}, "RENEW", -1, 0},
		{"enough", confirmation{replicas: 1, within: within}, [][]any{{one, one}}, "RENEW | WAIT 1 500", -1, 0},
		{"too few", confirmation{replicas: 2, within: within}, [][]any{{one, one}}, "RENEW | WAIT 2 500", 1, 2},
		{"0 needs none", confirmation{replicas: 2, within: within}, [][]any{{zero, zero}}, "RENEW | WAIT 2 500", -1, 0},
		{"all", confirmation{isAll: true, within: within}, [][]any{{one, primary}, {int64(2)}}, "RENEW | ROLE; WAIT 2 500", -1, 0},
		{"all but one", confirmation{isAll: true, within: within}, [][]any{{one, primary}, {one}}, "RENEW | ROLE; WAIT 2 500", 1, 2},
		{"all of none", confirmation{isAll: true, within: within}, [][]any{{one, []any{"master", zero, []any{}}}, {zero}},
			"RENEW | ROLE; WAIT 1 500", 0, 1},
		{"a replica", confirmation{isAll: true, within: within}, [][]any{{one, []any{"slave", "x", zero, "y", zero}}}, "RENEW | ROLE", 0, 1},
		{"disk", confirmation{isDisk: true, within: within}, [][]any{{one, []any{one, zero}}}, "RENEW | WAITAOF 1 0 500", -1, 0},
		{"no disk", confirmation{isDisk: true, within: within}, [][]any{{one, []any{zero, zero}}}, "RENEW | WAITAOF 1 0 500", 0, 0},
		{"disks", confirmation{replicas: 2, isDisk: true, within: within}, [][]any{{one, []any{one, one}}}, "RENEW | WAITAOF 1 2 500", 1, 2},
		{"demoted", confirmation{replicas: 1, within: within},
			[][]any{{one, ReplyError("ERR WAIT cannot be used with replica instances.")}}, "RENEW | WAIT 1 500", 0, 1},
	} {
		s, _, err := play(row.confirm, row.answers...)
		var unconfirmed *NotConfirmed
		if asked := strings.Join(s.asked, "; "); asked != row.asked {
			t.Error(row.name, asked)
		}
		if row.have < 0 && err != nil || row.have >= 0 && !errors.As(err, &unconfirmed) {
			t.Error(row.name, err)
		} else if row.have >= 0 && (unconfirmed.Have != row.have || unconfirmed.Wanted != row.wanted || !passes(err)) {
			t.Error(row.name, err)
		}
	}
}

func TestContextThatEndsBehindRoleEndsTheConfirmation(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	s := &script{answers: [][]any{{int64(1), []any{"master", int64(9), []any{}}}, silence}}
	asking := &session{request: request{claim: &NewLock(NewClient(s.find), "k").claim}, conn: newScriptConn(s)}
	_, err := confirmation{isAll: true}.perform(ctx, asking, now()+time.Minute, []any{"RENEW"})
	s.mu.Lock()
	defer s.mu.Unlock()
	if !errors.Is(err, context.DeadlineExceeded) || len(s.asked) != 2 || asking.conn != nil {
		t.Fatal(err, s.asked)
	}
}

func TestWhatNoRepetitionConfirmsIsFinal(t *testing.T) {
	for _, refusal := range []ReplyError{
		"ERR unknown command 'WAITAOF', with args beginning with: ",
		"ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.",
		"NOPERM this user has no permissions to run the 'waitaof' command",
	} {
		_, _, err := play(confirmation{isDisk: true}, []any{int64(1), refusal})
		if err == nil || passes(err) || isNotConfirmed(err) {
			t.Error(refusal, err)
		}
		if strings.Contains(string(refusal), "unknown") && !strings.Contains(err.Error(), "7.2") {
			t.Error(err)
		}
	}
}

// runOf returns a run that needs a replica, at a server that answers so.
func runOf(answers ...[]any) (*script, *Run[string]) {
	s := &script{answers: answers}
	once := NewOnce[string](NewClient(s.find), "w", Replicas(1), Owner(""))
	return s, &Run[string]{Hold: newHold(request{&once.claim, "secret"}, answer{fence: 7}, now()), once: once}
}

func TestWaitAloneIsRepeatedWhereDoneWasAnswered(t *testing.T) {
	s, run := runOf([]any{int64(1), int64(1), int64(0)}, []any{int64(0)}, []any{int64(1)})
	if err := run.Done(context.Background(), "r"); err != nil {
		t.Fatal(err)
	}
	first := "DONCE.RENEW w secret PX 30000 | DONCE.DONE w secret RESULT \"r\" | WAIT 1 500"
	if asked := strings.Join(s.asked, "; "); asked != first+"; WAIT 1 500; WAIT 1 500" {
		t.Fatal(asked)
	}
}

func TestDoneThatIsRepeatedElsewhereIsNotConfirmed(t *testing.T) {
	// The first connection ends behind DONE, or before its answer: the repetition writes nothing.
	for _, first := range [][]any{{int64(1), int64(1), io.EOF}, {io.EOF}} {
		_, run := runOf(first, []any{int64(0), int64(1), int64(1)})
		var unconfirmed *NotConfirmed
		if err := run.Done(context.Background(), "r"); !errors.As(err, &unconfirmed) || unconfirmed.Have != 0 {
			t.Fatal(err)
		}
	}
	// What was refused, or has not arrived, was not done: its repetition is the first. RENEW before it tells the latter.
	for _, first := range [][]any{{ReplyError("LOADING"), ReplyError("LOADING"), int64(0)}, {io.EOF}} {
		_, run := runOf(first, []any{int64(1), int64(1), int64(1)})
		if err := run.Done(context.Background(), "r"); err != nil {
			t.Fatal(err)
		}
	}
	// The connection ends while WAIT is repeated.
	_, run := runOf([]any{int64(1), int64(1), int64(0)}, []any{io.EOF}, []any{int64(0), int64(1), int64(1)})
	if err := run.Done(context.Background(), "r"); !isNotConfirmed(err) {
		t.Fatal(err)
	}
}

func TestSecondEndOfAHoldHeedsItsContext(t *testing.T) {
	_, run := runOf(silence)
	first, giveUp := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- run.Release(first) }()
	for isUnderWay := false; !isUnderWay; time.Sleep(time.Millisecond) {
		run.lease.mu.Lock()
		isUnderWay = run.lease.isEnding
		run.lease.mu.Unlock()
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for name, end := range map[string]func() error{
		"Release": func() error { return run.Release(ctx) },
		"Done":    func() error { return run.Done(ctx, "r") },
		"Fail":    func() error { return run.Fail(ctx, io.EOF) },
	} {
		second := make(chan error, 1)
		go func() { second <- end() }()
		select {
		case err := <-second:
			if !errors.Is(err, context.Canceled) {
				t.Error(name, err)
			}
		case <-time.After(8 * time.Second):
			t.Error(name, "waits for the first end")
		}
	}
	giveUp()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestSecondCallOfAnEndMayRepeatTheFirst(t *testing.T) {
	release := func(ctx context.Context, run *Run[string]) error { return run.Release(ctx) }
	done := func(ctx context.Context, run *Run[string]) error { return run.Done(ctx, "r") }
	failed := func(ctx context.Context, run *Run[string]) error { return run.Fail(ctx, io.EOF) }
	for name, row := range map[string]struct {
		first, second func(context.Context, *Run[string]) error
		// The server is silent behind these answers until the first call has given up.
		before [][]any
		after  []any
		want   error
	}{
		"it may be released already":  {release, release, nil, []any{int64(0)}, nil},
		"another end repeats nothing": {release, failed, nil, []any{int64(0)}, ErrHoldLost},
		// The second DONE writes nothing, so WAIT behind it tells nothing.
		"it is done, and not confirmed": {done, done, [][]any{{int64(1), int64(1), int64(0)}}, []any{int64(1), int64(1)}, ErrNotConfirmed},
		"it may be done already":        {done, done, nil, []any{int64(1), int64(1)}, ErrNotConfirmed},
	} {
		s, run := runOf(append(row.before, silence)...)
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		if err := row.first(ctx, run); err == nil {
			t.Error(name, s.asked)
		}
		cancel()
		s.mu.Lock()
		s.answers = [][]any{row.after}
		s.mu.Unlock()
		if err := row.second(context.Background(), run); !errors.Is(err, row.want) {
			t.Error(name, err, s.asked)
		}
	}
}

func TestZeroOfALaterReleaseIsItsRepetition(t *testing.T) {
	_, run := runOf([]any{io.EOF}, []any{int64(0)})
	if err := run.Release(context.Background()); err != nil {
		t.Fatal(err)
	}
	_, run = runOf([]any{int64(0)})
	if err := run.Release(context.Background()); !errors.Is(err, ErrHoldLost) {
		t.Fatal(err)
	}
	_, run = runOf([]any{io.EOF}, []any{int64(0), int64(0), int64(0)})
	if err := run.Done(context.Background(), "r"); !errors.Is(err, ErrHoldLost) {
		t.Fatal("another attempt has begun", err)
	}
	_, run = runOf([]any{int64(1), ReplyError("ERR RESULT is too long"), int64(0)}, []any{int64(1)})
	if err := run.Done(context.Background(), "r"); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Fatal(err)
	}
}
