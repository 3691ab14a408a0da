package dsync

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"time"
)

// asking is one request on its way to a hold.
type asking struct {
	session
	// Deadline is the moment of now() from which it is not asked again, or never.
	deadline time.Duration
	// Sent is when the last request that was answered was sent.
	sent time.Duration
	// Whether the server keeps a place for the request.
	hasPlace bool
}

// untilOver asks until the request is over: granted, done or failed by others, or refused because the wait is over. With an
// error, and where the answer is waiting, the server may have a grant or a place that the caller does not know of.
func (a *asking) untilOver(ctx context.Context) (answer, error) {
	a.token = newToken()
	patience := &patience{session: &a.session, retryFor: a.retryFor, deadline: a.deadline}
	for {
		got, err := a.once(ctx)
		if err == nil && a.client.isClosed.Load() {
			err = Final(ErrClosed)
		}
		if err == nil && ctx.Err() != nil && got.kind != granted {
			err = context.Cause(ctx)
		}
		if err != nil {
			// Asks the server, which may be another one by now, whether the place still stands.
			a.hasPlace = false
			if err := patience.wait(ctx, err); err != nil {
				return answer{}, err
			}
			continue
		}
		patience.answered()
		switch {
		case got.kind == ended:
			// A token is never used for a second hold.
			a.token, a.hasPlace = newToken(), false
		case got.kind != waiting && (got.kind != refused || a.isTry()):
			return got, nil
		case now() >= a.deadline:
			return answer{kind: waiting}, nil
		case got.kind == waiting:
			a.hasPlace = true
		}
		// Otherwise BLOCK has run out. The place is kept, and the next BLOCK goes on there.
	}
}

// once sends the request, and waits for its answer. A grant whose request was sent long ago is renewed.
func (a *asking) once(ctx context.Context) (answer, error) {
	a.sent = now()
	command, within := a.command(), answerWithin
	switch {
	case a.isTry():
	case a.hasPlace:
		block := max(time.Millisecond, min(blockAtMost, a.deadline-a.sent))
		command, within = a.command("BLOCK", millis(block)), block+answerWithin
	default:
		command = a.command("QUEUE", millis(placeKeptFor))
	}
	reply, err := a.do(ctx, within, command)
	if err != nil {
		return answer{}, err
	}
	got, err := readAnswer(reply)
	if got.kind == granted && now()-a.sent > a.lease/10 {
		a.sent = now()
		reply, err = a.do(ctx, answerWithin, a.renewal(a.lease))
		if number(reply) == 0 {
			got.kind = ended
		}
	}
	return got, err
}

// do sends a command, and waits so long for its answer and its confirmation; in a try only until there is time left for
// its withdrawal.
func (a *asking) do(ctx context.Context, within time.Duration, command []any) (any, error) {
	if a.isTry() {
		within = min(within, a.deadline+withdrawTryWithin-now()-a.confirm.within)
	}
	return a.session.do(ctx, within, a.confirm, command)
}

// parting returns how long the withdrawal, or the look for holders, may take now.
func (a *asking) parting() time.Duration {
	if a.isTry() {
		return min(withdrawTryWithin, a.deadline+2*withdrawTryWithin-now())
	}
	return withdrawWithin
}

// withdraw takes back the request: its grant, which nobody would hear of, would hold up the others. No error is told: the
// place runs out by itself.
func (a *asking) withdraw(ctx context.Context) {
	end := now() + a.parting()
	for attempt := 0; attempt < 2 && now() < end; attempt++ {
		reply, err := a.session.do(context.WithoutCancel(ctx), end-now(), confirmation{}, a.verb("RELEASE"))
		if number(reply) > 0 || err != nil && !passes(err) {
			return
		}
		// Nothing was withdrawn: the request may be on its way still, or an idle connection was closed.
	}
}

// refusal returns the error of a request that has not become a hold; nil if the work is done.
func (a *asking) refusal(ctx context.Context, got answer, err error) error {
	switch {
	case err == nil && got.kind == done:
		return nil
	case err == nil && got.kind == failed:
		return &WorkFailed{Key: a.key, Reason: got.text, Attempts: got.attempt}
	case err != nil && errors.Is(ctx.Err(), context.Canceled):
		return fmt.Errorf("dsync: gave up waiting for %s: %w", quoted(a.key), context.Cause(ctx))
	case isNotConfirmed(err), err != nil && ctx.Err() == nil && (now() < a.deadline || !passes(err)):
		return err
	}
	refused := &NotAcquired{Key: a.key, Err: anyOf(context.Cause(ctx), err)}
	if err == nil || ctx.Err() != nil {
		command := a.family.command("INFO", a.key, "COUNT", 3)
		reply, _ := a.session.do(context.WithoutCancel(ctx), a.parting(), confirmation{}, command)
		info := readFields(reply)
		refused.Holders, refused.State = firstHolders(info), text(info["state"])
	}
	return refused
}

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
