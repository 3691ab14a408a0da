package dsync

import (
	"sync"
	"time"
)

// greaterOfBoth is for systems without a clock that goes on while the machine is suspended.
var greaterOfBoth = bothClocks{total: time.Hour, read: time.Now}

// bothClocks counts, from look to look, the greater of what the monotonic and the wall clock say. So a step of the wall
// clock can end a hold too early, and never too late.
type bothClocks struct {
	mu    sync.Mutex
	read  func() time.Time
	last  time.Time
	total time.Duration
}

func (c *bothClocks) now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	read := c.read()
	if !c.last.IsZero() {
		// Round strips the monotonic clock.
		c.total += max(read.Sub(c.last), read.Round(0).Sub(c.last.Round(0)), 0)
	}
	c.last = read
	return c.total
}

// alarm calls a function at a moment, which waits for nothing. Nearly all are stopped before.
type alarm struct {
	at   time.Duration
	call func()
}

// alarms are those that are set. They have one timer of the system, because one that is set to an earlier moment wakes a
// thread: so it is never set back, and at times rings for an alarm that was stopped.
var alarms = struct {
	sync.Mutex
	set map[*alarm]struct{}
	// Next is when the timer rings, or never.
	next  time.Duration
	timer *time.Timer
}{set: map[*alarm]struct{}{}, next: never, timer: time.NewTimer(0)}

// ringAt sets the alarm to a moment of now(), instead of the one before.
func (a *alarm) ringAt(at time.Duration) {
	alarms.Lock()
	defer alarms.Unlock()
	a.at = at
	alarms.set[a] = struct{}{}
	wakeAt(at)
}

// stop returns whether the alarm was set, and has not rung.
func (a *alarm) stop() bool {
	alarms.Lock()
	defer alarms.Unlock()
	_, isSet := alarms.set[a]
	delete(alarms.set, a)
	return isSet
}

// wakeAt is called with the mutex.
func wakeAt(at time.Duration) {
	if at < alarms.next {
		alarms.next = at
		alarms.timer.Stop()
		alarms.timer = time.AfterFunc(at-now(), ring)
	}
}

func ring() {
	alarms.Lock()
	at, next := now(), never
	var due []*alarm
	for a := range alarms.set {
		if a.at > at {
			next = min(next, a.at)
			continue
		}
		delete(alarms.set, a)
		due = append(due, a)
	}
	alarms.next = never
	wakeAt(next)
	alarms.Unlock()
	for _, a := range due {
		a.call()
	}
}
