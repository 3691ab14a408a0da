package dsync

import (
	"context"
	"time"
)

// claim is a key, and how to ask for it.
type claim struct {
	client *Client
	family family
	key    string
	settings
}

// newClaim makes a claim with the options of its family, each of which is applied so.
func newClaim[O any](client *Client, family family, key string, options []O, apply func(O, *settings)) claim {
	s := settings{lease: lease, retryFor: retryFor, wait: never, maxHold: never, permits: 1}
	s.owner = defaultOwner()
	for _, option := range options {
		apply(option, &s)
	}
	s.check(key != "", "the key", "a name", `""`)
	s.complete()
	return claim{client: client, family: family, key: key, settings: s}
}

// Lock is a lock that one hold has at a time, or several that are [Shared]. Any number of goroutines may use it: each
// Acquire is a request of its own.
type Lock struct{ claim }

// NewLock makes a lock. Nothing is sent; a wrong option is the error of Acquire.
func NewLock(client *Client, key string, options ...LockOption) *Lock {
	return &Lock{newClaim(client, locks, key, options, LockOption.forLock)}
}

// Semaphore is a semaphore, of which holds take permits in the order of their requests, or fairly by [Lane].
type Semaphore struct{ claim }

// NewSemaphore makes a semaphore; give it a [Limit]. Nothing is sent; a wrong option is the error of Acquire.
func NewSemaphore(client *Client, key string, options ...SemaphoreOption) *Semaphore {
	return &Semaphore{newClaim(client, semaphores, key, options, SemaphoreOption.forSemaphore)}
}

// Available returns how many permits are free; -1 if nobody uses the semaphore and no [Limit] is given. It takes nothing.
func (s *Semaphore) Available(ctx context.Context) (int, error) {
	info, err := s.info(ctx)
	switch {
	case info["state"] == nil && s.limit == 0:
		return -1, err
	case info["state"] == nil:
		return s.limit, err // Nobody uses it.
	}
	return int(number(info["available"])), err
}

// Acquire asks until the hold is granted. Otherwise the request is withdrawn, and the error is a [*NotAcquired] if
// [Wait] is over or the context's deadline has passed, a [*NotConfirmed] if it was granted and replicas did not confirm
// that in time, the context's cause if that was cancelled, and the server's if it does not pass.
func (c *claim) Acquire(ctx context.Context) (*Hold, error) {
	hold, _, err := c.ask(ctx)
	return hold, err
}

// TryAcquire is Acquire with a Wait of 0.
func (c *claim) TryAcquire(ctx context.Context) (*Hold, error) {
	try := *c
	try.wait = 0
	return try.Acquire(ctx)
}

func (c *claim) isTry() bool { return c.wait == 0 }

// Do acquires, does the work, and releases. The context of the work is cancelled when the hold is lost; [HoldOf]
// returns its hold. The error is that of the work, with a [*HoldLost] if the hold ended before the work did. A release
// that does not reach the server is logged, and the lease ends the hold.
func (c *claim) Do(ctx context.Context, work func(ctx context.Context) error) error {
	hold, err := c.Acquire(ctx)
	if err != nil {
		return err
	}
	return hold.during(ctx, work, func(ctx context.Context, _ error) error { return hold.quietly(hold.Release(ctx)) })
}

// Locked returns whether anybody holds the key; of a semaphore, whether fewer than its [Permits] are free. It takes nothing.
func (c *claim) Locked(ctx context.Context) (bool, error) {
	info, err := c.info(ctx)
	if c.family == semaphores {
		return info["state"] != nil && number(info["available"]) < int64(c.permits), err
	}
	return number(info["holders"]) > 0, err
}

// Holders returns who holds the key, 1,000 at most. It takes nothing.
func (c *claim) Holders(ctx context.Context) ([]Holder, error) {
	info, err := c.info(ctx)
	return firstHolders(info), err
}

func (c *claim) info(ctx context.Context) (map[string]any, error) {
	reply, err := c.repeat(ctx, c.family.command("INFO", c.key, "COUNT", 1000), answerWithin)
	return readFields(reply), err
}

// repeat sends a command, which may be sent any number of times, until it is answered.
func (c *claim) repeat(ctx context.Context, command []any, within time.Duration) (any, error) {
	if c.err != nil {
		return nil, c.err
	}
	session := &session{request: request{claim: c}}
	defer session.close(false)
	patience := &patience{session: session, retryFor: c.retryFor, deadline: never}
	for {
		reply, err := session.do(ctx, within, confirmation{}, command)
		if err == nil {
			return reply, nil
		}
		if err := patience.wait(ctx, err); err != nil {
			return nil, err
		}
	}
}

// ask asks until the answer is a grant, of which it returns the hold, or work that is done.
func (c *claim) ask(ctx context.Context) (*Hold, answer, error) {
	if c.err != nil {
		return nil, answer{}, c.err
	}
	asked := *c
	a := &asking{session: session{request: request{claim: &asked}}, deadline: now() + c.wait}
	defer a.close(false)
	if c.isTry() {
		// Then the last answer, and the withdrawal, have the rest of its time.
		a.deadline = now() + tryWithin - 2*withdrawTryWithin
		asked.confirm.within = min(asked.confirm.within, withdrawTryWithin)
	}
	if err := context.Cause(ctx); err != nil {
		return nil, answer{}, a.refusal(ctx, answer{}, err)
	}
	got, err := a.untilOver(ctx)
	if err == nil && got.kind == granted {
		return newHold(request{c, a.token}, got, a.sent), got, nil
	}
	if err != nil || got.kind == waiting {
		a.withdraw(ctx)
	}
	return nil, got, a.refusal(ctx, got, err)
}
