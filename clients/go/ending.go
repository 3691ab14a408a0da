package dsync

import (
	"context"
	"runtime"
	"time"
)

// The ends of a hold.
const (
	release = "RELEASE"
	finish  = "DONE"
	fail    = "FAIL"
)

// end sends the command until it is answered, for as long as the server can know the hold; RELEASE of a hold that is
// lost once. The error is a *HoldLost if the server says that the hold had ended before.
func (h *Hold) end(ctx context.Context, verb string, words ...any) error {
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
		if verb == release {
			return nil
		}
		return errReleased
	}
	lost := h.Err()
	counts, err := h.say(ctx, lost != nil, verb, words...)
	h.hasEnded = err == nil
	h.lease.over()
	switch {
	case verb == release && lost != nil:
		return lost
	case err != nil || counts:
		return err
	}
	told := h.lease.loss
	told.Why = notFound
	return &told
}

const notFound = "its lease ran out, or it was revoked or removed"

// say sends the command until it is answered, and confirmed if it is DONE. It returns whether that counts as the end of
// the hold: the server has ended it now, or may have for an earlier sending.
func (g *grip) say(ctx context.Context, isLost bool, verb string, words ...any) (counts bool, err error) {
	retryFor := time.Duration(0)
	if !isLost || verb != release {
		retryFor = g.lease.ends()
	}
	session := &session{request: g.request}
	defer session.close(false)
	patience := &patience{session: session, retryFor: retryFor, deadline: now() + retryFor, isOfHold: true}
	var confirm confirmation
	if verb == finish {
		confirm = g.request.confirm
	}
	// The repetition of a DONE of a run is answered as the first, and a hold that is lost has most likely lapsed.
	zeroIsLost := verb == finish && g.request.family == works || isLost
	for {
		commands := g.commands(confirm, verb, words...)
		replies, err := session.send(ctx, answerWithin, confirm, commands...)
		reply, err := session.reply(ctx, replies, len(commands)-1, err)
		counts := number(reply) > 0 || g.said == verb && !zeroIsLost
		isKnown := g.said != verb || len(replies) == 2 && number(replies[0]) > 0
		if !isKnown && (isNotConfirmed(err) || err == nil && confirm.isWanted() && counts) {
			// A repetition writes nothing, so WAIT behind it tells nothing.
			return false, session.named(&NotConfirmed{Wanted: max(1, confirm.replicas)})
		}
		if err == nil || tellsTheEnd(err) {
			return counts, nil
		}
		if codeOf(err) == "" && !isUnsent(err) {
			g.said = verb // It may have been carried out.
		}
		for isNotConfirmed(err) && session.conn != nil {
			if err := patience.wait(ctx, err); err != nil {
				return false, err
			}
			if _, err = session.send(ctx, answerWithin, confirm); err == nil {
				return true, nil
			}
		}
		if err := patience.wait(ctx, err); err != nil {
			return false, err
		}
	}
}

// commands returns what is sent in one write. RENEW before a DONE that is to be confirmed is answered 1 if this DONE is
// the first that the server carries out. Of a hold that is lost it tells nothing.
func (g *grip) commands(confirm confirmation, verb string, words ...any) [][]any {
	command := g.request.verb(verb, words...)
	if confirm.isWanted() {
		if asks, err := g.lease.asks(now()); err == nil {
			return [][]any{g.request.renewal(asks.asked), command}
		}
	}
	return [][]any{command}
}

// lingering returns a context that ends a second after the other one: a command that ends a hold is worth so much.
func lingering(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Done() == nil {
		return ctx, func() {}
	}
	longer, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		time.AfterFunc(withdrawWithin, func() { cancel(context.Cause(ctx)) })
	})
	return longer, func() { stop(); cancel(nil) }
}

func anyOf(first, second error) error {
	if first != nil {
		return first
	}
	return second
}
