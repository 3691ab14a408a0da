package dsync

import (
	"context"
	"errors"
	"runtime"
	"time"
)

// takeoverGrace is how long a promoted server lets a hold live at least (dsync.takeover-grace-ms).
const takeoverGrace = 5 * time.Second

// The ends of a hold.
const (
	release = "RELEASE"
	finish  = "DONE"
	fail    = "FAIL"
)

// ending is a command that ends a hold.
type ending struct {
	verb  string
	words []string
	// IsRun is of DONE of a run: its repetition is answered as the first.
	isRun bool
}

// end sends the command until it is answered, for as long as the server can know the hold; RELEASE of a hold that is
// lost once. The error is a *HoldLost if the server says that the hold had ended before.
func (h *Hold) end(ctx context.Context, e ending) error {
	defer runtime.KeepAlive(h)
	ctx, cancel := lingering(ctx)
	defer cancel()
	select {
	case h.ending <- struct{}{}:
		defer func() { <-h.ending }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if h.hasEnded {
		if e.verb == release {
			return nil
		}
		return errReleased
	}
	lost := h.Err()
	retryFor := time.Duration(0)
	if lost == nil || e.verb != release {
		retryFor = h.lease.ends()
	}
	hasEnded, isFirst, err := h.say(ctx, e, retryFor)
	h.hasEnded = err == nil
	h.lease.over()
	switch {
	case e.verb == release && lost != nil:
		return lost
	case err != nil || hasEnded, !isFirst && !e.isRun:
		return err
	}
	told := h.lease.loss
	told.Why = notFound
	return &told
}

const notFound = "its lease ran out, or it was revoked or removed"

// say sends the command until it is answered, and confirmed if it is DONE. It returns whether the server has ended the
// hold now, and whether this was the answer to the first sending.
func (g *grip) say(ctx context.Context, e ending, retryFor time.Duration) (hasEnded, isFirst bool, err error) {
	session := &session{request: g.request}
	defer session.close(false)
	patience := &patience{key: g.Key(), retryFor: retryFor, deadline: now() + retryFor}
	var confirm confirmation
	if e.verb == finish {
		confirm = g.request.confirm
	}
	mayBeDone := false
	for isFirst = true; ; isFirst = false {
		commands := g.commands(e, confirm)
		replies, err := session.send(ctx, answerWithin, confirm, commands...)
		var reply any
		if len(replies) == len(commands) {
			reply = replies[len(replies)-1]
			if refusal, isRefusal := reply.(ReplyError); isRefusal {
				reply, err = nil, session.failed(ctx, refusal)
			}
		}
		isKnown := !mayBeDone || len(replies) == 2 && number(replies[0]) > 0
		mayNeed := isNotConfirmed(err) || err == nil && confirm.isWanted() && (number(reply) > 0 || !e.isRun)
		if !isKnown && mayNeed {
			// A repetition writes nothing, so WAIT behind it tells nothing.
			return false, false, &requestError{g.Key(), session.route, &NotConfirmed{Wanted: max(1, confirm.replicas)}}
		}
		for isNotConfirmed(err) && session.link != nil {
			if err := patience.wait(ctx, err); err != nil {
				return false, isFirst, err
			}
			if _, err = session.send(ctx, answerWithin, confirm); err == nil {
				return true, isFirst, nil
			}
		}
		if err == nil || tellsTheEnd(err) {
			return number(reply) > 0, isFirst, nil
		}
		var refusal ReplyError
		mayBeDone = mayBeDone || !errors.As(err, &refusal)
		if err := patience.wait(ctx, err); err != nil {
			return false, isFirst, err
		}
	}
}

// commands returns what is sent in one write. RENEW before a DONE that is to be confirmed is answered 1 if this DONE is
// the first that the server carries out. Of a hold that is lost it tells nothing.
func (g *grip) commands(e ending, confirm confirmation) [][]string {
	command := g.request.verb(e.verb, e.words...)
	if confirm.isWanted() {
		if asks, err := g.lease.asks(now()); err == nil {
			return [][]string{g.request.renewal(asks.asked), command}
		}
	}
	return [][]string{command}
}

// lingering returns a context that ends a second after the other one: a command that ends a hold is worth so much.
func lingering(ctx context.Context) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		time.AfterFunc(farewell, func() { cancel(context.Cause(ctx)) })
	})
	return longer, func() { stop(); cancel(nil) }
}

func anyOf(first, second error) error {
	if first != nil {
		return first
	}
	return second
}
