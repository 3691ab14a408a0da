package dsync

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// longestReason is how many bytes of a reason FAIL is given.
const longestReason = 1000

// Once is work that is done once for the whole fleet, whose result everybody gets. It is stored as JSON, which all languages
// read; one of type []byte as it is.
type Once[T any] struct{ claim claim }

// NewOnce makes the work. Nothing is sent; a wrong option is the error of the first request.
func NewOnce[T any](client *Client, key string, options ...OnceOption) *Once[T] {
	return &Once[T]{newClaim(client, works, key, options, OnceOption.forOnce)}
}

// Do returns the result of the work, and does it if it is not done. Others wait meanwhile. An error or a panic of the
// work is a failed attempt, and the next in line begins, after [RetryDelay]: with [UntilDone] that may be this call. So
// is a deadline of the context that the work does not meet; a context that is cancelled counts no attempt. The context
// of the work is cancelled when its run is lost; [HoldOf] returns the run's hold. The error is that of the work, a
// [*HoldLost] if another attempt has begun meanwhile, a [*WorkFailed] if all attempts have failed, or one of
// [Lock.Acquire].
func (o *Once[T]) Do(ctx context.Context, work func(ctx context.Context) (T, error)) (result T, err error) {
	for {
		run, begun := o.Begin(ctx)
		if over, isOver := begun.(*WorkFailed); isOver {
			over.Err = err
		}
		if begun != nil || run.IsDone() {
			return run.result, begun
		}
		hasFailed := false
		err = run.during(ctx, func(inner context.Context) (err error) {
			result, err = work(inner)
			return err
		}, func(end context.Context, err error) error {
			switch {
			case err == nil:
				return run.Done(end, result)
			case ctx.Err() == context.Canceled:
				return run.quietly(run.Release(end))
			}
			hasFailed = true
			return run.quietly(run.Fail(end, err))
		})
		if !hasFailed || !o.claim.isUntilDone || ctx.Err() != nil {
			return result, err
		}
	}
}

// Get returns the result of work that is done, and whether it is. It does not begin the work.
func (o *Once[T]) Get(ctx context.Context) (result T, isDone bool, err error) {
	reply, err := o.claim.repeat(ctx, works.command("GET", o.claim.key), answerWithin)
	items, isArray := reply.([]any)
	if err != nil || !isArray || len(items) < 2 {
		return result, false, err
	}
	result, err = decode[T](text(items[1]))
	return result, err == nil, err
}

// Run is a run of work, or the result of work that was done already.
type Run[T any] struct {
	// Hold is nil if the work was done already.
	*Hold
	once   *Once[T]
	result T
}

// Begin begins the work, or waits for the result of another run. Unless [Run.IsDone], end it with Done, Fail or
// Release; the last counts no attempt.
func (o *Once[T]) Begin(ctx context.Context) (*Run[T], error) {
	run := &Run[T]{once: o}
	hold, got, err := o.claim.ask(ctx)
	if run.Hold = hold; err == nil && hold == nil {
		run.result, err = decode[T](got.text)
	}
	return run, err
}

// IsDone returns whether the work was done already.
func (r *Run[T]) IsDone() bool { return r.Hold == nil }

// Result returns the result of work that was done already.
func (r *Run[T]) Result() T { return r.result }

// Done records the result, of which everybody is told from now on. It is repeated as [Hold.Release] is, also if the run
// is lost: the server's word counts. The error is a [*HoldLost] if another attempt has begun before. A result that
// cannot be stored is a failed attempt, and the error says why. With a [*NotConfirmed] the result is recorded, and its
// replicas may not know.
func (r *Run[T]) Done(ctx context.Context, result T) error {
	stored, err := encode(result)
	if err == nil {
		words := append([]any{"RESULT", stored}, r.once.claim.keep...)
		err = r.end(ctx, finish, words...)
		if err == nil || isNoAnswer(err) || errors.Is(err, ErrHoldLost) || errors.Is(err, errReleased) {
			return err
		}
	}
	// Released instead, the attempt would not count, and the work would run without end.
	return anyOf(err, r.Fail(ctx, err))
}

// Fail ends the run as failed: the attempt counts.
func (r *Run[T]) Fail(ctx context.Context, reason error) error {
	words := []any{"REASON", cut(reason.Error(), longestReason)}
	if delay := r.once.claim.retryDelay; delay > 0 {
		words = append(words, "DELAY", millis(delay))
	}
	return r.end(ctx, fail, words...)
}

func encode[T any](result T) (string, error) {
	if bytes, isBytes := any(&result).(*[]byte); isBytes {
		return string(*bytes), nil
	}
	stored, err := json.Marshal(result)
	if err != nil {
		return "", fmt.Errorf("dsync: the result cannot be stored: %w", err)
	}
	return string(stored), nil
}

// decode reads a result. Work that was done by others may have none: then it is the zero value. What is no JSON is a text.
func decode[T any](stored string) (result T, err error) {
	if bytes, isBytes := any(&result).(*[]byte); isBytes {
		*bytes = []byte(stored)
	} else if stored != "" {
		err = json.Unmarshal([]byte(stored), &result)
	}
	if text, isText := any(stored).(T); isText && err != nil {
		return text, nil
	}
	if err != nil {
		err = fmt.Errorf("dsync: the stored result is of another type: %w", err)
	}
	return result, err
}
