package dsync

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"
)

// Hold is what a granted request has: a lock, permits, a membership or a run. It is renewed until it is released or
// lost, or until the program refers neither to it nor to its context any more: then it is lost when its lease is over.
type Hold struct{ *grip }

// grip is what the renewal knows of a hold. It does not keep the Hold alive.
type grip struct {
	request request
	got     answer
	lease   *holdLease
	// Ending is full while a command that ends the hold is on its way, and hasEnded is set when it was answered.
	ending   chan struct{}
	hasEnded bool
	// Said is the verb of such a command that was not answered, and may have ended the hold all the same.
	said string
}

func newHold(r request, got answer, sent time.Duration) *Hold {
	g := &grip{request: r, got: got, ending: make(chan struct{}, 1)}
	g.lease = newLease(&r.settings, sent, HoldLost{Key: r.key, Fence: got.fence})
	g.lease.start(func() { g.renew(func(error) {}) })
	hold := &Hold{g}
	runtime.SetFinalizer(hold, func(hold *Hold) { hold.lease.forget() })
	return hold
}

// Key returns the key.
func (g *grip) Key() string { return g.request.key }

// Fence returns the public number of the hold, which only grows from hold to hold: let the resource refuse one that is
// smaller than the highest it has seen.
func (g *grip) Fence() int64 { return g.got.fence }

// Index returns the lowest number from 0 that no other hold of the semaphore had at the grant; -1 unless asked for by
// [Index].
func (g *grip) Index() int { return g.got.index }

// Attempt returns which attempt at the work this run is, from 1. Of other holds it is 1.
func (g *grip) Attempt() int { return g.got.attempt }

// Left returns for how long the hold is certain without another renewal; 0 once it is lost or released.
func (g *grip) Left() time.Duration {
	left, _ := g.lease.left()
	return left
}

// Err returns the [*HoldLost] of a hold that is lost, and nil of any other. It looks at the clock, so it is right even
// if timers come late.
func (g *grip) Err() error {
	_, lost := g.lease.left()
	return lost
}

// Format shows the hold without its token.
func (g *grip) Format(f fmt.State, _ rune) {
	fmt.Fprintf(f, "the hold of %s with fence %d, %.1f s left", quoted(g.Key()), g.Fence(), g.Left().Seconds())
}

// Context returns a context that is cancelled when the hold is lost, with a [*HoldLost] as [context.Cause], and not
// when it is released. Give it to the work. It refers to the hold, which so lives for as long as its work. Its Done
// does not: who waits for that alone is told of the loss, and keeps the hold for as long as it is to be renewed, with
// a deferred Release for instance.
func (h *Hold) Context() context.Context { return context.WithValue(h.lease.context, holdKey{}, h) }

type holdKey struct{}

// HoldOf returns the hold that the context is of: that of [Hold.Context], the first of [Holds.Context], or the innermost whose
// Do the caller is in.
// Without one it is nil.
func HoldOf(ctx context.Context) *Hold {
	hold, _ := ctx.Value(holdKey{}).(*Hold)
	return hold
}

// Renew renews the lease now; the hold does so itself at each third of it. A length of more than 0 is that of the lease
// from then on. The error is a [*HoldLost] if the hold has ended.
func (h *Hold) Renew(ctx context.Context, length time.Duration) error {
	if length > 0 {
		wanted, err := h.request.terms(length)
		if err != nil {
			return err
		}
		h.lease.resize(wanted)
	}
	told := make(chan error, 1)
	h.renew(func(err error) { told <- err })
	select {
	case err := <-told:
		return anyOf(h.Err(), err)
	case <-ctx.Done():
		return anyOf(h.Err(), context.Cause(ctx))
	}
}

var errReleased = errors.New("dsync: the hold is released")

// Release ends the hold. It is repeated while nothing answers, for the lease and five seconds: a server that is
// promoted meanwhile begins the lease anew. The context bounds that; one that has ended already leaves it a second. The
// error is a [*HoldLost] if the hold had ended before. A hold that is released already stays so.
func (h *Hold) Release(ctx context.Context) error { return h.end(ctx, release) }

// quietly returns the error of an end after which the lease does the rest: a server that is out of reach is no error of
// the work.
func (h *Hold) quietly(err error) error {
	if err != nil && !errors.Is(err, ErrHoldLost) && isNoAnswer(err) {
		logger().Warn("the hold was not ended, its lease will end it", "key", h.Key(), "error", err)
		return nil
	}
	return err
}

// during does the work, and then ends the hold as its error says, also if the work panics: that is errPanicked.
func (h *Hold) during(
	ctx context.Context, work func(context.Context) error, end func(context.Context, error) error,
) (err error) {
	inner, cancel := context.WithCancelCause(context.WithValue(ctx, holdKey{}, h))
	defer cancel(nil)
	defer context.AfterFunc(h.lease.context, func() { cancel(context.Cause(h.lease.context)) })()
	err = errPanicked
	defer func() {
		if ended := end(context.WithoutCancel(ctx), err); err == nil {
			err = ended
		} else if ended != nil {
			err = errors.Join(err, ended)
		}
	}()
	return work(inner)
}

var errPanicked = errors.New("the work panicked")
