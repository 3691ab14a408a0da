package dsync

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

// The rules that need no server.

func TestRequestsAreSpelledAsTheGrammarSays(t *testing.T) {
	semaphore := NewSemaphore(nil, "k", Limit(5), Lease(3*time.Second), Owner("web-1"), MinHold(time.Second), Lane("a"))
	r := request{&semaphore.claim, "t"}
	for want, got := range map[string][]any{
		"DSEM.ACQUIRE k TOKEN t PX 3000 LIMIT 5 MINHOLD 1000 LANE a OWNER web-1 QUEUE 5000": r.command("QUEUE", "5000"),
		"DSEM.RENEW k t PX 1":        r.renewal(time.Microsecond),
		"DSEM.RELEASE k t":           r.verb(release),
		"DONCE.BEGIN w TOKEN u PX 1": (&request{&NewOnce[string](nil, "w", Lease(time.Millisecond), Owner("")).claim, "u"}).command(),
	} {
		if spelled(got) != want {
			t.Errorf("%q, not %q", spelled(got), want)
		}
	}
	if first, second := newToken(), newToken(); first == second || len(first) != 36 || first[14] != '4' {
		t.Error(first, second)
	}
}

func TestRepliesAreReadByTheirShape(t *testing.T) {
	grant := answer{kind: granted, fence: 7, attempt: 1, index: -1}
	indexed, run := grant, grant
	indexed.index, run.attempt = 0, 2
	for _, row := range []struct {
		reply any
		want  answer
	}{
		{nil, answer{}},
		{[]any{"t", int64(7)}, grant},
		{[]any{"WAITING", int64(7)}, grant}, // A caller's own token.
		{[]any{"WAITING", int64(7), int64(0)}, indexed},
		{[]any{"WAITING", int64(3), "dsync:{k}:9"}, answer{kind: waiting}},
		{[]any{"RUN", "t", int64(7), int64(2)}, run},
		{[]any{"DONE", "r", int64(1)}, answer{kind: done, text: "r", attempt: 1}},
		{[]any{"DONE", nil, int64(1)}, answer{kind: done, attempt: 1}},
		{[]any{"FAILED", "why", int64(2)}, answer{kind: failed, text: "why", attempt: 2}},
	} {
		if got, err := readAnswer(row.reply); err != nil || got != row.want {
			t.Error(row.reply, got, err)
		}
	}
	for _, reply := range []any{int64(1), "OK", []any{}, []any{"NEW", "a", "b"}, []any{"RUN", "t", int64(1), int64(1), int64(1)}} {
		if _, err := readAnswer(reply); err == nil || passes(err) {
			t.Error(reply, err)
		}
	}
}

func TestWhichAnswersPass(t *testing.T) {
	for code := range passing {
		if err := fmt.Errorf("at x: %w", ReplyError(code+" 1 127.0.0.1:7000")); !passes(err) {
			t.Error(code)
		}
	}
	for _, err := range []error{
		io.EOF, os.ErrDeadlineExceeded, &NotConfirmed{}, errors.New("no sentinel answers"), Unsent(io.EOF),
		ReplyError("ERR max number of clients reached"), Unsent(ReplyError("LOADING")),
	} {
		if !passes(err) {
			t.Error(err)
		}
	}
	for _, final := range []error{
		ReplyError("UNBLOCKED released: RELEASE with the token of this request has withdrawn it"),
		ReplyError("UNBLOCKED superseded: the same token asked again"),
		ReplyError("NOPERM"), ReplyError("WRONGPASS"), ReplyError("WRONGTYPE"), ReplyError("ERR syntax"), Final(io.EOF),
		Unsent(ReplyError("WRONGPASS")), ReplyError("ERR max number of keys"),
	} {
		if passes(final) {
			t.Error(final)
		}
	}
}

func TestWhatIsRefusedBeforeItIsSentIsNoAnswerToAnEnd(t *testing.T) {
	for _, err := range []error{
		Unsent(ReplyError("WRONGPASS")), Unsent(ReplyError("NOPERM select")), Unsent(Final(io.EOF)), ReplyError("NOAUTH"),
		ReplyError("WRONGPASS"), ReplyError("BUSY"), io.EOF,
	} {
		if !isNoAnswer(fmt.Errorf("at x: %w", err)) {
			t.Error(err)
		}
	}
	for _, err := range []error{ReplyError("NOPERM"), ReplyError("WRONGTYPE"), ReplyError("ERR too large"), Final(ErrClosed)} {
		if isNoAnswer(err) {
			t.Error(err)
		}
	}
}

func TestAskNamesAnAddress(t *testing.T) {
	for reply, want := range map[ReplyError]string{
		"ASK 1234 127.0.0.1:7000":  "127.0.0.1:7000",
		"ASK 1234 node-2:7000":     "node-2:7000",
		"ASK 1234 fe80::1:7000":    "[fe80::1]:7000",
		"ASK 1234 ::1:7000":        "[::1]:7000",
		"ASK 1234 :7000":           "", // The server does not know its host.
		"ASK 1234 ?:7000":          "",
		"ASK":                      "",
		"MOVED 1234 fe80::1:7000":  "",
		"ASKED for something else": "",
	} {
		if got := reply.asked(); got != want {
			t.Errorf("%s: %q, not %q", reply, got, want)
		}
	}
}

func TestTextsOfOthersAreEscaped(t *testing.T) {
	holder := Holder{Owner: "we\x1b[2J\u202e\u200bb-1 it's \"m\u00fcller\""}
	shown := (&NotAcquired{Key: "jo\x07bs", Holders: []Holder{holder, holder}, State: "paused"}).Error()
	if strings.ContainsAny(shown, "\x1b\x07\u202e\u200b") || !strings.Contains(shown, `it's "müller" (fence 0`) {
		t.Error(shown)
	}
	if owner := cut(strings.Repeat("ü", 100), 5); owner != "üü" {
		t.Error(owner)
	}
	if owner := defaultOwner(); !strings.HasSuffix(owner, fmt.Sprintf(":%d", os.Getpid())) || len(owner) > longestText {
		t.Error(owner)
	}
}

func TestClockGoesOnWhileTheMachineIsSuspended(t *testing.T) {
	var boot, idle float64
	if uptime, err := os.ReadFile("/proc/uptime"); err == nil {
		fmt.Sscan(string(uptime), &boot, &idle)
		if difference := now().Seconds() - boot; difference < -1 || difference > 60 {
			t.Error(difference)
		}
	}
	at := time.Now()
	both := bothClocks{read: func() time.Time { return at }}
	start := both.now()
	at = at.Add(time.Second)
	if passed := both.now() - start; passed != time.Second {
		t.Error(passed)
	}
	// Only the wall clock has gone on; what has no monotonic clock counts by it.
	at = at.Round(0).Add(time.Minute)
	if passed := both.now() - start; passed != 61*time.Second {
		t.Error(passed)
	}
	at = at.Add(-time.Hour)
	if passed := both.now() - start; passed != 61*time.Second {
		t.Error("a step back counts", passed)
	}
}

func leaseOf(t *testing.T, ago time.Duration, options ...Option) *holdLease {
	c := newClaim(nil, locks, "k", options, Option.forLock)
	if c.err != nil {
		t.Fatal(c.err)
	}
	l := newLease(&c.settings, now()-ago, HoldLost{Key: "k", Fence: 7})
	l.start(func() {})
	t.Cleanup(l.over)
	return l
}

func TestHoldThatMayBeOverIsNeverHeldAgain(t *testing.T) {
	for ago, isHeld := range map[time.Duration]bool{0: true, 26 * time.Second: true, 28 * time.Second: false, 40 * time.Second: false} {
		if left, lost := leaseOf(t, ago).left(); (left > 0) != isHeld || (lost == nil) != isHeld {
			t.Error(ago, left, lost)
		}
	}
	l := leaseOf(t, 29*time.Second)
	asks := l.wanted
	l.notRenewed(io.EOF)
	l.renewed(now(), asks)
	if left, lost := l.left(); left != 0 || !errors.Is(lost, ErrHoldLost) || !errors.Is(context.Cause(l.context), io.EOF) {
		t.Error("a late answer brings it back", left, lost)
	}
	l = leaseOf(t, 0)
	l.ends()
	l.notFound(nil)
	if _, lost := l.left(); lost != nil {
		t.Error("the renewal has overtaken the answer to the release", lost)
	}
	l.over()
	if left, lost := l.left(); left != 0 || lost != nil {
		t.Error(left, lost)
	}
}

func TestRenewalsAskForWhatIsLeftOfMaxHold(t *testing.T) {
	l := leaseOf(t, 25*time.Second, MaxHold(40*time.Second))
	asks, err := l.asks(now())
	if err != nil || asks.asked > 15*time.Second || asks.asked < 14*time.Second || asks.length != 30*time.Second {
		t.Error(asks, err)
	}
	l = leaseOf(t, 20*time.Second, MaxHold(10*time.Second))
	if _, err := l.asks(now()); err == nil || !strings.Contains(err.Error(), "MaxHold") {
		t.Error(err)
	}
}

func TestLeaseIsNoLongerThanTheServerIsTold(t *testing.T) {
	const part = 900 * time.Microsecond
	l := leaseOf(t, 0, Lease(time.Minute+part), Margin(0), MaxHold(time.Hour+part))
	if told := time.Duration(millis(l.terms.asked)) * time.Millisecond; l.until()-l.sent > told {
		t.Error(l.until()-l.sent, told)
	}
	hold := held(nil, "k", time.Minute)
	hold.lease.over()
	if err := hold.Renew(context.Background(), part); err == nil || !strings.Contains(err.Error(), "Lease") {
		t.Error(err)
	}
	l.resize(terms{length: 2 * time.Hour})
	asks, err := l.asks(l.sent)
	if told := time.Duration(millis(asks.asked)) * time.Millisecond; err != nil || asks.asked > told {
		t.Error(asks, told, err)
	}
}

func TestTimesWithoutEndAreNotOver(t *testing.T) {
	const endless = time.Duration(1<<63 - 1)
	s := &script{answers: [][]any{{ReplyError("LOADING"), int64(0)}, {[]any{"t", int64(7)}, int64(1)}}}
	lock := NewLock(NewClient(s.find), "k", Wait(endless), RetryFor(endless), MaxHold(endless), Replicas(1), Within(endless))
	hold, err := lock.Acquire(context.Background())
	if err != nil || hold.Err() != nil || answerWithin+lock.confirm.within < 0 {
		t.Fatal(err, hold)
	}
	hold.lease.over() // It is not renewed.
}

func TestRenewalWithoutAnAnswerMayHaveShortenedTheLease(t *testing.T) {
	l := leaseOf(t, 0, Lease(time.Hour))
	l.resize(terms{length: time.Minute, margin: time.Second})
	asks, err := l.asks(now())
	if left, _ := l.left(); err != nil || left > time.Minute {
		t.Error(left, err)
	}
	l.renewed(now(), asks)
	l.resize(terms{length: time.Hour, margin: time.Second})
	if asks, _ = l.asks(now()); asks.asked != time.Hour {
		t.Error(asks)
	}
	if left, _ := l.left(); left > time.Minute {
		t.Error("longer before that is answered", left)
	}
}

func TestAnswerToAnOlderRenewalDoesNotTellWhatALaterOneAskedFor(t *testing.T) {
	// A renewal is overtaken by one with a shorter lease, whose answer does not come. The server may have carried out both.
	l := leaseOf(t, 0, Lease(time.Hour))
	sent := now()
	older, _ := l.asks(sent)
	l.resize(terms{length: time.Minute, margin: time.Second})
	if _, err := l.asks(now()); err != nil {
		t.Fatal(err)
	}
	l.renewed(sent, older)
	if left, _ := l.left(); left > time.Minute {
		t.Error("held after the shorter lease", left)
	}
}

func TestResultsAreStoredAsTheirTypeSays(t *testing.T) {
	if stored, err := encode(map[string]int{"a": 1}); err != nil || stored != `{"a":1}` {
		t.Error(stored, err)
	}
	if stored, _ := encode([]byte{0, 255}); stored != "\x00\xff" {
		t.Error(stored)
	}
	if result, err := decode[map[string]int](`{"a":1}`); err != nil || !reflect.DeepEqual(result, map[string]int{"a": 1}) {
		t.Error(result, err)
	}
	if result, err := decode[int](""); err != nil || result != 0 {
		t.Error(result, err)
	}
	if result, err := decode[string]("ch_7"); err != nil || result != "ch_7" {
		t.Error("a text that is no JSON", result, err)
	}
	if result, err := decode[any]("ch_7"); err != nil || result != "ch_7" {
		t.Error(result, err)
	}
	if result, _ := decode[string](`"quoted"`); result != `quoted` {
		t.Error(result)
	}
	// The type of the work says it, not that of one result.
	if stored, _ := encode[any]("text"); stored != `"text"` {
		t.Error(stored)
	}
}
