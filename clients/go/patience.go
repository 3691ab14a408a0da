package dsync

import (
	"context"
	"math/rand"
	"time"
)

// never is a time that is not over, and a moment of now() that does not come.
const never = time.Duration(1 << 62)

// patience is for how long a request is repeated while nothing answers.
type patience struct {
	session  *session
	retryFor time.Duration
	// IsOfHold is whether the request renews or ends a hold.
	isOfHold bool
	// Deadline is a moment of now(), or never.
	deadline     time.Duration
	failingSince time.Duration
	pause        time.Duration
	// Unconfirmed is the last answer that was not confirmed, since one that counts.
	unconfirmed error
}

// answered notes that the server has answered, so that the next failure counts afresh.
func (p *patience) answered() { p.failingSince, p.pause, p.unconfirmed = 0, 0, nil }

// wait pauses before the next attempt. It returns the error, with the key and the address, if that does not pass, or if the
// time is over; that of a context that has ended instead. An earlier answer that was not confirmed says more than both.
func (p *patience) wait(ctx context.Context, err error) error {
	err = p.session.named(err)
	if ctx.Err() == nil && !passes(err) && !(p.isOfHold && isUnsent(err)) {
		return err
	}
	if isNotConfirmed(err) {
		p.unconfirmed = err
	}
	if p.failingSince == 0 {
		p.failingSince, p.pause = now(), firstPause
	}
	left := min(p.deadline, p.failingSince+p.retryFor) - now()
	pause, cancel := context.WithTimeout(ctx, min(p.pause/2+time.Duration(rand.Int63n(int64(p.pause/2))), left))
	defer cancel()
	if <-pause.Done(); left <= 0 || ctx.Err() != nil {
		return anyOf(p.unconfirmed, anyOf(p.session.named(context.Cause(ctx)), err))
	}
	if p.pause == firstPause {
		logger().Info("asking again", "key", p.session.key, "error", err)
	}
	p.pause = min(2*p.pause, longestPause)
	return nil
}
