package dsync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Claim is a [*Lock] or a [*Semaphore].
type Claim interface {
	Acquire(ctx context.Context) (*Hold, error)
	theClaim() *claim
}

func (c *claim) theClaim() *claim { return c }

// Holds are holds of several keys.
type Holds struct {
	holds   []*Hold
	context context.Context
}

// AllOf acquires several keys, one after the other in the order of their names, so that no two callers wait for each
// other. Where one is not acquired, those before it are released, and the error is that one's. [Wait] is for each key;
// bound all of them by the context.
func AllOf(ctx context.Context, claims ...Claim) (*Holds, error) {
	keyOf := func(nth int) string { return claims[nth].theClaim().key }
	order := make([]int, len(claims))
	for nth := range order {
		order[nth] = nth
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(keyOf(a), keyOf(b)) })
	all := &Holds{holds: make([]*Hold, len(claims))}
	giveUp := func(held []int, err error) (*Holds, error) {
		for i := len(held) - 1; i >= 0; i-- {
			hold := all.holds[held[i]]
			_ = hold.quietly(hold.Release(context.WithoutCancel(ctx)))
		}
		return nil, err
	}
	for i, nth := range order {
		if i > 0 && keyOf(order[i-1]) == keyOf(nth) {
			return giveUp(order[:i], fmt.Errorf("dsync: %s is asked for twice, and would wait for itself", quoted(keyOf(nth))))
		}
		var err error
		if all.holds[nth], err = claims[nth].Acquire(ctx); err != nil {
			return giveUp(order[:i], err)
		}
	}
	// It refers to the holds, which so live for as long as their work.
	all.context = context.WithValue(anyLost(all.holds), holdsKey{}, all)
	if len(all.holds) > 0 {
		all.context = context.WithValue(all.context, holdKey{}, all.holds[0])
	}
	// The first ones can be lost while the last one is waited for.
	if err := all.Err(); err != nil {
		return giveUp(order, err)
	}
	return all, nil
}

type holdsKey struct{}

// anyLost returns a context that is cancelled when the first of the holds is lost. It does not keep them alive.
func anyLost(holds []*Hold) context.Context {
	first, cancel := context.WithCancelCause(context.Background())
	watch := func(lost context.Context) {
		context.AfterFunc(lost, func() { cancel(context.Cause(lost)) })
	}
	for _, hold := range holds {
		watch(hold.lease.context)
	}
	return first
}

// Holds returns the holds in the order in which their claims were given.
func (h *Holds) Holds() []*Hold { return h.holds }

// Context returns a context that is cancelled when the first of the holds is lost, as [Hold.Context].
func (h *Holds) Context() context.Context { return h.context }

// Err returns the [*HoldLost] of the first hold that is lost, or nil.
func (h *Holds) Err() error {
	for _, hold := range h.holds {
		if err := hold.Err(); err != nil {
			return err
		}
	}
	return nil
}

// Release releases the holds, the last one first. The errors are those of [Hold.Release], joined.
func (h *Holds) Release(ctx context.Context) error {
	var errs []error
	for i := len(h.holds) - 1; i >= 0; i-- {
		errs = append(errs, h.holds[i].Release(ctx))
	}
	return errors.Join(errs...)
}
