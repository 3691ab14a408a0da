package dsync

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// shortestSlice is the shortest time after which a wait looks at the clock again.
const shortestSlice = 50 * time.Millisecond

// holdLease is the lease of one hold: when it counts as lost, by the clock of this machine.
//
// A server that does not answer is no comfort: in a partition its leases run out all the same, and it serves the next
// waiter. So a lease is counted from the moment at which the last answered request was sent, which is before the server
// began to count. Once it is lost it stays lost, also when a late answer arrives: the work was stopped.
type holdLease struct {
	// Context is cancelled with a *HoldLost when the hold is lost, for ever, and never when it is released.
	context context.Context
	cancel  context.CancelCauseFunc
	// Loss is what a loss tells, but why.
	loss HoldLost

	mu sync.Mutex
	// Sent is when the last answered request was sent, and terms what it asked for. Wanted is what the next one asks
	// for.
	sent          time.Duration
	terms, wanted terms
	// End is the moment at which MaxHold is over, or never.
	end time.Duration
	// LastSent is when the last request was sent, answered or not.
	lastSent time.Duration
	// Shortened is until when the hold is certain if the server has renewed it for a request without an answer, which
	// may have asked for less; or never.
	shortened time.Duration
	// IsEnding is set when the holder ends the hold: a renewal that does not find it tells nothing then. IsOver is set
	// when that is answered: nothing counts as a loss then. IsForgotten is set when nobody refers to the hold any more.
	isEnding, isOver, isForgotten bool
	// Trouble is why the last renewal failed, and pause that before its next repetition.
	trouble error
	pause   time.Duration
	// Alarm looks whether the hold is lost. It opens no connection, and needs nobody who refers to the hold: who waits for
	// the loss may have nothing else. It calls renew at renewAt, or never.
	alarm   *time.Timer
	renewAt time.Duration
	renew   func()
}

// terms are what a request asks for.
type terms struct {
	// Length is that of the lease, and asked what is left of it before MaxHold is over.
	length, asked, margin time.Duration
}

// newLease begins a lease that was granted in answer to a request that was sent at this moment.
func newLease(s *settings, sent time.Duration, loss HoldLost) *holdLease {
	granted, _ := s.terms(s.lease)
	l := &holdLease{loss: loss, sent: sent, terms: granted, wanted: granted, end: sent + s.maxHold, shortened: never}
	l.context, l.cancel = context.WithCancelCause(context.Background())
	return l
}

// start begins to look for the loss, and to renew.
func (l *holdLease) start(renew func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renew, l.alarm = renew, time.AfterFunc(never, l.look)
	l.renewFrom(l.third())
}

// third returns when a third of the lease is over, or a hundredth of it before: so many holds are due at one moment, and
// are renewed in one write. It is called with the mutex, as all functions below of which that is said.
func (l *holdLease) third() time.Duration {
	return (l.sent + l.terms.length/3).Truncate(l.terms.length / 100)
}

// renewFrom has the hold renewed at this moment, unless it is forgotten. Called with the mutex.
func (l *holdLease) renewFrom(at time.Duration) {
	if !l.isForgotten {
		l.renewAt = at
	}
	l.lookFrom(now())
}

// lookFrom sets the alarm, at this moment, which is now. It looks at the clock in slices, all holds at the same moments:
// no wait that the system offers goes on while the machine is suspended. Called with the mutex.
func (l *holdLease) lookFrom(at time.Duration) {
	slice := max(shortestSlice, min(l.terms.margin, defaultMargin(l.terms.length)))
	l.alarm.Reset(min(l.until(), (at+slice).Truncate(slice), l.renewAt) - at)
}

// until returns the moment from which the hold counts as lost. Called with the mutex.
func (l *holdLease) until() time.Duration {
	return min(l.sent+l.terms.asked-l.terms.margin, l.shortened, l.end)
}

func (l *holdLease) look() {
	l.mu.Lock()
	at, isDue := now(), false
	if l.isLive(at) {
		if isDue = at >= l.renewAt; isDue {
			l.renewAt = never
		}
		l.lookFrom(at)
	}
	l.mu.Unlock()
	if isDue {
		l.renew()
	}
}

// isLive returns whether the hold is certain at this moment, which is now, and notes whether the time is up. Called with
// the mutex.
func (l *holdLease) isLive(at time.Duration) bool {
	if l.isOver || l.context.Err() != nil {
		return false
	}
	if at < l.until() {
		return true
	}
	if l.terms.asked < l.terms.length || at >= l.end {
		l.lose("its MaxHold is over", nil)
	} else if l.isForgotten {
		l.lose("it was not renewed, because the program does not refer to it any more", nil)
	} else {
		l.lose("no renewal was answered in time", l.trouble)
	}
	return false
}

// lose cancels the work. Called with the mutex.
func (l *holdLease) lose(why string, trouble error) {
	lost := l.loss
	lost.Why, lost.Err = why, trouble
	l.alarm.Stop()
	l.cancel(&lost)
	l.log(slog.LevelWarn, lost.Error())
}

// log does not call the program's handler here, because the mutex is held.
func (l *holdLease) log(level slog.Level, text string, words ...any) {
	go func() { logger().Log(context.Background(), level, text, words...) }()
}

// left returns for how long the hold is certain, and the error if it is lost.
func (l *holdLease) left() (time.Duration, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := now()
	if l.isLive(at) {
		return l.until() - at, nil
	}
	return 0, context.Cause(l.context)
}

// asks returns what a renewal asks for that is sent at this moment. The error says that there is none to send.
func (l *holdLease) asks(sent time.Duration) (terms, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.isLive(sent) {
		return terms{}, anyOf(context.Cause(l.context), errReleased)
	}
	asks := l.wanted
	asks.asked = min(asks.length, (l.end - sent).Truncate(time.Millisecond))
	l.lastSent = sent
	l.shortened = min(l.shortened, sent+asks.asked-asks.margin)
	return asks, nil
}

// resize sets what renewals ask for from now on.
func (l *holdLease) resize(wanted terms) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wanted = wanted
}

// renewed notes that the server has renewed the lease, for a request that was sent at this moment with these terms. It
// is renewed next at a third of it.
func (l *holdLease) renewed(sent time.Duration, asked terms) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if sent < l.sent || !l.isLive(now()) {
		return
	}
	l.sent, l.terms, l.trouble = sent, asked, nil
	// A request that was sent later has no answer yet, and may have asked for less.
	if sent >= l.lastSent {
		l.shortened = never
	}
	l.renewFrom(l.third())
}

// notFound notes that the server does not have the hold any more.
func (l *holdLease) notFound(trouble error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.isEnding && l.isLive(now()) {
		l.lose(notFound, trouble)
	}
}

// notRenewed notes why a renewal failed, and has it repeated: also one that was not due, since it may have shortened the
// lease.
func (l *holdLease) notRenewed(trouble error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	level := slog.LevelInfo
	if !isNoAnswer(trouble) {
		level, l.wanted = slog.LevelWarn, l.terms // A length that the server refuses does not count.
	}
	if l.trouble == nil {
		l.pause = firstPause
		l.log(level, "the hold is not renewed, asking again", "key", l.loss.Key, "error", trouble)
	}
	l.trouble = trouble
	if l.isLive(now()) {
		l.renewFrom(now() + min(l.pause, l.terms.length/10, l.wanted.length/10))
		l.pause = min(2*l.pause, longestPause)
	}
}

// ends notes that the holder ends the hold, and returns for how long that is said: for as long as the server can know
// it, which begins the lease anew if it is promoted.
func (l *holdLease) ends() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isEnding = true
	return l.terms.length + takeoverGrace
}

// forget notes that nobody refers to the hold any more: it is not renewed again.
func (l *holdLease) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isForgotten, l.renewAt = true, never
}

// over notes that the hold has ended.
func (l *holdLease) over() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isOver = true
	l.alarm.Stop()
}
