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
