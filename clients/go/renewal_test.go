package dsync

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"
)

// stalling is a server whose connections answer 1, but the first RENEW of the key "slow" and what comes behind it: their
// connection is silent until it is closed.
type stalling struct {
	mu sync.Mutex
	// Whether that connection is silent, and whether it was closed.
	isSlow, isClosed bool
	// How many renewals of a key were answered before it was closed.
	renewed map[string]int
}

func (s *stalling) find(context.Context, string) (Node, error) {
	connect := func(context.Context) (Conn, error) {
		return &stallingConn{stalling: s, closed: make(chan struct{})}, nil
	}
	return Node{Name: "server", Connect: connect}, nil
}

func (s *stalling) count(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.renewed[key]
}

type stallingConn struct {
	*stalling
	once   sync.Once
	closed chan struct{}
}

func (c *stallingConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}

func (c *stallingConn) Address() string { return "server" }

func (c *stallingConn) Interrupter() func() { return nil }

func (c *stallingConn) Do(commands ...[]any) ([]any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var replies []any
	for _, command := range commands {
		if command[1] == "slow" && !c.isSlow {
			c.isSlow = true
			c.mu.Unlock()
			<-c.closed
			c.mu.Lock()
			c.isClosed = true
			return nil, errors.New("closed")
		}
		if !c.isClosed {
			c.renewed[command[1].(string)]++
		}
		replies = append(replies, int64(1))
	}
	return replies, nil
}

func held(client *Client, key string, lease time.Duration) *Hold {
	lock := NewLock(client, key, Lease(lease))
	return newHold(request{&lock.claim, newToken()}, answer{fence: 7}, now())
}

func TestSilentConnectionDelaysNoOtherRenewal(t *testing.T) {
	s := &stalling{renewed: map[string]int{}}
	client := NewClient(s.find)
	slow := held(client, "slow", time.Minute)
	heard := make(chan error, 1)
	go func() { heard <- slow.Renew(context.Background(), 0) }()
	for begun := time.Now(); time.Since(begun) < 10*time.Second; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		isSlow := s.isSlow
		s.mu.Unlock()
		if isSlow {
			break
		}
	}
	other := held(client, "other", time.Minute)
	if err := other.Renew(context.Background(), 0); err != nil {
		t.Fatal(err)
	}
	if err := <-heard; err == nil || !strings.Contains(err.Error(), "no answer within") {
		t.Fatal(err)
	}
	if s.count("other") != 1 || slow.Err() != nil {
		t.Fatal("it has waited for the silent connection", s.count("other"), slow.Err())
	}
}

func TestRenewalWithAShorterLeaseIsRepeatedBeforeThatIsOver(t *testing.T) {
	hold := held(NewClient((&stalling{renewed: map[string]int{}}).find), "slow", time.Hour)
	if err := hold.Renew(context.Background(), time.Second); err == nil || !strings.Contains(err.Error(), "no answer within") {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	if err := hold.Err(); err != nil {
		t.Fatal("it waits for the third of an hour", err)
	}
}

// dueAt returns the renewals of the holds a, b and c, and what is told how each ended.
func dueAt(client *Client) (due []renewal, told map[string]chan error) {
	told = map[string]chan error{}
	for _, key := range []string{"a", "b", "c"} {
		ended := make(chan error, 1)
		told[key] = ended
		due = append(due, renewal{grip: held(client, key, time.Minute).grip, told: func(err error) { ended <- err }})
	}
	return due, told
}

func TestRenewalsThatAreDueGoInOneWrite(t *testing.T) {
	s := &script{answers: [][]any{{int64(1), int64(0), ReplyError("LOADING")}}}
	client := NewClient(s.find)
	due, _ := dueAt(client)
	renewAll(due)
	if len(s.asked) != 1 || strings.Count(s.asked[0], "DLOCK.RENEW") != 3 {
		t.Fatal(s.asked)
	}
	for i, lost := range []bool{false, true, false} {
		if err := due[i].Err(); errors.Is(err, ErrHoldLost) != lost {
			t.Error(i, err)
		}
	}
}

func TestErrorOfARenewalNamesItsOwnKey(t *testing.T) {
	for _, answers := range [][]any{
		{io.EOF},
		{ReplyError("LOADING"), ReplyError("LOADING"), ReplyError("LOADING")},
	} {
		client := NewClient((&script{answers: [][]any{answers}}).find)
		due, told := dueAt(client)
		renewAll(due)
		for _, one := range due {
			one.lease.over() // It is not renewed again.
			if told := (<-told[one.Key()]).Error(); !strings.HasPrefix(told, quoted(one.Key())+": server: ") {
				t.Error(one.Key(), told)
			}
		}
	}
}

func TestHoldsThatAreGrantedTogetherAreDueTogether(t *testing.T) {
	moments := map[time.Duration]bool{}
	for ago := time.Duration(0); ago < 100*time.Millisecond; ago += 10 * time.Millisecond {
		l := leaseOf(t, ago)
		due := l.third()
		if early := l.sent + l.terms.length/3 - due; early < -time.Second || early > l.terms.length/100 {
			t.Error(ago, early)
		}
		moments[due] = true
	}
	if len(moments) > 2 {
		t.Error("each is due by itself", moments)
	}
}

// asked plays a request at a server that answers so.
func asked(t *testing.T, c *claim, delay time.Duration, answers ...[]any) (string, *Hold, error) {
	t.Helper()
	s := &script{answers: answers, delay: delay}
	c.client = NewClient(s.find)
	hold, _, err := c.ask(context.Background())
	if hold != nil {
		hold.lease.over() // It is not renewed.
	}
	var lines []string
	for _, line := range s.asked {
		words := strings.Fields(line)
		lines = append(lines, words[0])
		if last := words[len(words)-2]; last == "QUEUE" || last == "BLOCK" {
			lines[len(lines)-1] += " " + last
		}
	}
	return strings.Join(lines, ", "), hold, err
}

func TestStatesOfARequest(t *testing.T) {
	grant, place := []any{"t", int64(7)}, []any{"WAITING", int64(1), "channel"}
	lock := func(options ...LockOption) *claim {
		return &NewLock(nil, "k", append(options, Owner(""))...).claim
	}
	for _, row := range []struct {
		name    string
		claim   *claim
		delay   time.Duration
		answers [][]any
		asked   string
		isHeld  bool
	}{
		{"granted at once", lock(), 0, [][]any{{grant}}, "DLOCK.ACQUIRE QUEUE", true},
		{"a turn", lock(), 0, [][]any{{place}, {nil}, {grant}},
			"DLOCK.ACQUIRE QUEUE, DLOCK.ACQUIRE BLOCK, DLOCK.ACQUIRE BLOCK", true},
		{"an old grant is renewed", lock(Lease(time.Second)), 150 * time.Millisecond,
			[][]any{{grant}, {int64(1)}}, "DLOCK.ACQUIRE QUEUE, DLOCK.RENEW", true},
		{"one that has ended is asked for anew", lock(Lease(time.Second)), 150 * time.Millisecond,
			[][]any{{grant}, {int64(0)}, {grant}, {int64(1)}},
			"DLOCK.ACQUIRE QUEUE, DLOCK.RENEW, DLOCK.ACQUIRE QUEUE, DLOCK.RENEW", true},
		{"a passing answer", lock(), 0, [][]any{{place}, {ReplyError("READONLY")}, {grant}},
			"DLOCK.ACQUIRE QUEUE, DLOCK.ACQUIRE BLOCK, DLOCK.ACQUIRE QUEUE", true},
		{"a final one", lock(), 0, [][]any{{ReplyError("ERR")}, {int64(0)}, {int64(0)}},
			"DLOCK.ACQUIRE QUEUE, DLOCK.RELEASE, DLOCK.RELEASE", false},
		{"a refused try", lock(Wait(0)), 0, [][]any{{nil}, {nil}}, "DLOCK.ACQUIRE, DLOCK.INFO", false},
		{"not confirmed", lock(Replicas(1), Wait(0)), 0, [][]any{{grant, int64(0)}, {grant, int64(1)}},
			"DLOCK.ACQUIRE, DLOCK.ACQUIRE", true},
	} {
		asked, hold, err := asked(t, row.claim, row.delay, row.answers...)
		if row.claim.confirm.isWanted() {
			asked = strings.ReplaceAll(asked, " | WAIT 1 500", "")
		}
		if asked != row.asked || (hold != nil) != row.isHeld || (err == nil) != row.isHeld {
			t.Error(row.name, asked, hold, err)
		}
	}
}

func TestTryIsShortWhateverIsNotAnswered(t *testing.T) {
	grant, late := []any{"t", int64(7)}, 300*time.Millisecond
	for name, row := range map[string]struct {
		options []LockOption
		delay   time.Duration
		answers [][]any
	}{
		"the request":               {nil, 0, [][]any{silence}},
		"its confirmation":          {[]LockOption{Replicas(1), Within(3 * time.Second)}, 0, [][]any{silence}},
		"the renewal of its grant":  {[]LockOption{Lease(time.Second)}, late, [][]any{{grant}, silence}},
		"after another has refused": {nil, 0, [][]any{{ReplyError("LOADING")}, silence}},
	} {
		row := row
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, deadline := range []time.Duration{time.Minute, tryWithin * 3 / 4} {
				lock := NewLock(NewClient((&script{answers: row.answers, delay: row.delay}).find), "k", row.options...)
				begun := time.Now()
				ctx, cancel := context.WithTimeout(context.Background(), deadline)
				hold, err := lock.TryAcquire(ctx)
				cancel()
				if took := time.Since(begun); hold != nil || err == nil || took > tryWithin+450*time.Millisecond {
					t.Error(deadline, took, err)
				}
			}
		})
	}
}

func TestDeadlineOfTheContextTellsWhatIsNotConfirmed(t *testing.T) {
	s := &script{delay: 20 * time.Millisecond}
	for i := 0; i < 50; i++ {
		s.answers = append(s.answers, []any{[]any{"t", int64(7)}, int64(0)})
	}
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	_, err := NewLock(NewClient(s.find), "k", Replicas(1)).Acquire(ctx)
	if !isNotConfirmed(err) || !strings.Contains(s.asked[len(s.asked)-1], "RELEASE") {
		t.Fatal(err, s.asked)
	}
}

func TestContextThatEndsInAPauseIsTheError(t *testing.T) {
	s := &script{}
	for i := 0; i < 50; i++ {
		s.answers = append(s.answers, []any{io.EOF})
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if _, err := NewLock(NewClient(s.find), "k").Locked(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
}

func TestContextThatHasEndedSendsNoRequest(t *testing.T) {
	s := &script{}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := NewLock(NewClient(s.find), "k").Acquire(ctx); !errors.Is(err, context.Canceled) || len(s.asked) > 0 {
		t.Fatal(err, s.asked)
	}
	// A deadline that has passed is the end of a wait, as one that passes later: only the holders are asked for.
	ctx, cancel = context.WithTimeout(context.Background(), -1)
	defer cancel()
	_, err := NewLock(NewClient(s.find), "k").Acquire(ctx)
	if !errors.Is(err, ErrNotAcquired) || !errors.Is(err, context.DeadlineExceeded) || len(s.asked) != 1 {
		t.Fatal(err, s.asked)
	}
}

func TestRenewalGoesToWhereAskSendsIt(t *testing.T) {
	source := &script{answers: [][]any{{int64(1), ReplyError("ASK 1234 fe80::1:7000"), int64(1)}}}
	target := &script{answers: [][]any{{int64(1)}}}
	find := func(ctx context.Context, key string) (Node, error) {
		node, err := source.find(ctx, key)
		node.Asked = func(address string) Node {
			asked, _ := target.find(ctx, key)
			asked.Name = address
			return asked
		}
		return node, err
	}
	client := NewClient(find)
	due, told := dueAt(client)
	renewAll(due)
	for _, one := range due {
		err := <-told[one.Key()]
		one.lease.over() // It is not renewed again.
		if err != nil {
			t.Error(one.Key(), err)
		}
	}
	if len(source.asked) != 1 || len(target.asked) != 1 || !strings.Contains(target.asked[0], "RENEW b ") {
		t.Error(source.asked, target.asked)
	}
}
