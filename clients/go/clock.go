package dsync

import (
	"sync"
	"sync/atomic"
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

// A timer that is set before all others wakes a thread of the runtime, which costs as much as a request. So one is set
// for a moment soon, and is never stopped, while requests are sent and holds are granted: theirs come behind it.
var nextTick atomic.Int64

func tick() {
	const soon = 50 * time.Millisecond
	at, next := now(), nextTick.Load()
	if int64(at) >= next && nextTick.CompareAndSwap(next, int64(at+soon)) {
		time.AfterFunc(soon, func() {})
	}
}
