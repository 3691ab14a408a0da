package dsync

import (
	"context"
	"errors"
	"fmt"
	"sort"
)

// Claim is a [*Lock] or a [*Semaphore].
type Claim interface {
	Acquire(ctx context.Context) (*Hold, error)
	theClaim() *claim
}

func (c *claim) theClaim() *claim { return c }

// Holds are holds of several keys.
type Holds struct {
	// In the order in which their claims were given.
	holds   []*Hold
	context context.Context
}

// AllOf acquires several keys, one after the other in the order of their names, so that no two callers wait for each
// other. Where one is not acquired, those before it are released, and the error is that one's. [Wait] is for each key;
// bound all of them by the context.
func AllOf(ctx context.Context, claims ...Claim) (*Holds, error) {
	order := append([]Claim(nil), claims...)
	sort.SliceStable(order, func(i, j int) bool { return order[i].theClaim().key < order[j].theClaim().key })
	held := map[Claim]*Hold{}
	all := &Holds{}
	giveUp := func(err error) (*Holds, error) {
		for i := len(all.holds) - 1; i >= 0; i-- {
			_ = all.holds[i].endQuietly(context.WithoutCancel(ctx))
		}
		return nil, err
	}
	for i, claim := range order {
		if i > 0 && order[i-1].theClaim().key == claim.theClaim().key {
			return giveUp(fmt.Errorf("dsync: %s is asked for twice, and would wait for itself", quoted(claim.theClaim().key)))
		}
		hold, err := claim.Acquire(ctx)
		if err != nil {
			return giveUp(err)
		}
		held[claim] = hold
		all.holds = append(all.holds, hold)
	}
	for i, claim := range claims {
		all.holds[i] = held[claim]
	}
	all.context = &allContext{anyLost(all.holds), all}
	// The first ones can be lost while the last one is waited for.
	if err := all.Err(); err != nil {
		return giveUp(err)
	}
	return all, nil
}

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

// allContext refers to its holds, so that they live for as long as their work.
type allContext struct {
	context.Context
	all *Holds
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
