// Command driver is the driver of dsync for Go: `driver go-redis|redigo`. Its orders are those of ../../README.md.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"dsync-client"
)

// order is one order; what is not said stays nil.
type order struct {
	ID               int     `json:"id"`
	Do               string  `json:"do"`
	Mode             string  `json:"mode"`
	Ports            []int   `json:"ports"`
	User             string  `json:"user"`
	Password         string  `json:"password"`
	SentinelUser     string  `json:"sentinel_user"`
	SentinelPassword string  `json:"sentinel_password"`
	CA               string  `json:"ca"`
	As               string  `json:"as"`
	Family           string  `json:"family"`
	Key              string  `json:"key"`
	Lease            *ms     `json:"lease"`
	Wait             *ms     `json:"wait"`
	Limit            *int    `json:"limit"`
	Lane             string  `json:"lane"`
	LaneLimit        *int    `json:"lane_limit"`
	MinHold          *ms     `json:"min_hold"`
	Index            bool    `json:"index"`
	Attempts         *int    `json:"attempts"`
	MaxHold          *ms     `json:"max_hold"`
	RetryFor         *ms     `json:"retry_for"`
	Replicas         any     `json:"replicas"`
	Within           *ms     `json:"within"`
	Disk             bool    `json:"disk"`
	MS               ms      `json:"ms"`
	Result           string  `json:"result"`
	Reason           string  `json:"reason"`
	Keep             string  `json:"keep"`
	Owner            *string `json:"owner"`
	Value            any     `json:"value"`
	Failures         int     `json:"failures"`
	UntilDone        bool    `json:"until_done"`
}

type ms float64

func (m ms) duration() time.Duration { return time.Duration(float64(m) * float64(time.Millisecond)) }

type answer map[string]any

// held is what an order has named.
type held struct {
	hold   *dsync.Hold
	member *dsync.Member
	run    *dsync.Run[[]byte]
}

type driver struct {
	library string
	client  *dsync.Client

	mu      sync.Mutex
	held    map[string]held
	cancels map[string]context.CancelFunc
	// Losses are what is kept of holds that are forgotten.
	losses map[string]<-chan struct{}
}

func main() {
	d := &driver{library: os.Args[1], held: map[string]held{}, cancels: map[string]context.CancelFunc{}}
	d.losses = map[string]<-chan struct{}{}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	var speaking sync.Mutex
	for lines.Scan() {
		var order order
		if err := json.Unmarshal(lines.Bytes(), &order); err != nil {
			panic(err)
		}
		go func() {
			said, err := d.obey(order)
			if err != nil {
				said = wordsFor(err)
			}
			said["id"] = order.ID
			line, err := json.Marshal(said)
			if err != nil {
				panic(err)
			}
			speaking.Lock()
			defer speaking.Unlock()
			fmt.Println(string(line))
		}()
	}
}

func wordsFor(err error) answer {
	var unconfirmed *dsync.NotConfirmed
	is := "error"
	switch {
	case errors.As(err, &unconfirmed):
		return answer{"is": "not confirmed", "text": err.Error(), "have": unconfirmed.Have, "wanted": unconfirmed.Wanted}
	case errors.Is(err, context.Canceled):
		is = "given up"
	case errors.Is(err, dsync.ErrNotAcquired):
		is = "busy"
	case errors.Is(err, dsync.ErrWorkFailed):
		is = "failed"
	case errors.Is(err, dsync.ErrHoldLost):
		is = "lost"
	}
	return answer{"is": is, "text": err.Error()}
}

func (d *driver) obey(order order) (answer, error) {
	ctx := context.Background()
	switch order.Do {
	case "connect":
		return d.connect(order)
	case "acquire":
		return d.acquire(order)
	case "give_up":
		d.mu.Lock()
		defer d.mu.Unlock()
		cancel, isKnown := d.cancels[order.As]
		if !isKnown {
			return nil, unknown(order)
		}
		cancel()
		return answer{"is": "cancelled"}, nil
	case "locked":
		return d.locked(ctx, order)
	case "holders":
		fences := []int64{}
		holders, err := dsync.NewLock(d.client, order.Key).Holders(ctx)
		for _, holder := range holders {
			fences = append(fences, holder.Fence)
		}
		return answer{"is": "holders", "fences": fences}, err
	case "once":
		return d.workOnce(ctx, order)
	}
	d.mu.Lock()
	named, isKnown := d.held[order.As]
	lost, isForgotten := d.losses[order.As]
	switch order.Do {
	case "release", "done", "fail", "forget":
		delete(d.held, order.As)
		delete(d.cancels, order.As)
	}
	d.mu.Unlock()
	if !isKnown && !isForgotten {
		return nil, unknown(order)
	}
	switch order.Do {
	case "until_lost":
		if !isForgotten {
			lost = named.hold.Context().Done()
		}
		select {
		case <-lost:
			return answer{"is": "lost"}, nil
		case <-time.After(order.MS.duration()):
			return answer{"is": "held"}, nil
		}
	case "renew":
		return answer{"is": "renewed"}, named.hold.Renew(ctx, order.Lease.duration())
	case "look":
		if named.hold.Err() != nil || named.hold.Left() == 0 {
			return answer{"is": "lost"}, nil
		}
		return answer{"is": "held"}, nil
	case "release":
		return answer{"is": "released"}, named.hold.Release(ctx)
	case "done":
		if named.member != nil {
			return answer{"is": "done"}, named.member.Done(ctx)
		}
		return answer{"is": "done"}, named.run.Done(ctx, []byte(order.Result))
	case "fail":
		return answer{"is": "failed"}, named.run.Fail(ctx, errors.New(order.Reason))
	case "forget":
		type name struct{}
		switch order.Keep {
		case "callback":
			return answer{"is": "cannot", "why": "there are contexts for that"}, nil
		case "signal":
			lost = named.hold.Context().Done()
		case "derived":
			lost = context.WithValue(named.hold.Context(), name{}, "a value").Done()
		}
		if lost != nil {
			d.mu.Lock()
			d.losses[order.As] = lost
			d.mu.Unlock()
		}
		named = held{}
		// Once for the finalizer of the hold, and once more for what it referred to.
		runtime.GC()
		runtime.GC()
		return answer{"is": "forgotten"}, nil
	case "show":
		text := fmt.Sprintf("%v %+v %#v %s %v %+v %#v", named.hold, named.hold, named.hold, named.hold, named.run, named, named)
		return answer{"is": "shown", "text": text}, nil
	}
	return nil, fmt.Errorf("no order %q", order.Do)
}

func unknown(order order) error { return fmt.Errorf("%s: nothing is named %q", order.Do, order.As) }

func (d *driver) acquire(order order) (answer, error) {
	ctx, cancel := context.WithCancel(context.Background())
	d.mu.Lock()
	d.cancels[order.As] = cancel
	d.mu.Unlock()
	named := held{}
	var err error
	switch order.Family {
	case "once":
		named.run, err = dsync.NewOnce[[]byte](d.client, order.Key, order.forOnce()...).Begin(ctx)
		if err == nil && named.run.IsDone() {
			return answer{"is": "done", "text": string(named.run.Result())}, nil
		}
		named.hold = named.run.Hold
	case "group":
		if named.member, err = dsync.NewGroup(d.client, order.Key, order.forGroup()...).Add(ctx); err == nil {
			named.hold = named.member.Hold
		}
	case "semaphore":
		named.hold, err = dsync.NewSemaphore(d.client, order.Key, order.forSemaphore()...).Acquire(ctx)
	default:
		named.hold, err = dsync.NewLock(d.client, order.Key, order.forLock()...).Acquire(ctx)
	}
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	d.held[order.As] = named
	d.mu.Unlock()
	said := answer{"is": "held", "fence": named.hold.Fence(), "attempt": named.hold.Attempt()}
	if order.Index {
		said["index"] = named.hold.Index()
	}
	return said, nil
}

func (d *driver) workOnce(ctx context.Context, order order) (answer, error) {
	runs := 0
	value, err := dsync.NewOnce[any](d.client, order.Key, order.forOnce()...).Do(ctx, func(context.Context) (any, error) {
		if runs++; runs <= order.Failures {
			return nil, errors.New("no disk")
		}
		return order.Value, nil
	})
	if err != nil {
		return answer{"is": "failed", "text": err.Error(), "runs": runs}, nil
	}
	return answer{"is": "value", "value": value, "runs": runs}, nil
}

func (d *driver) locked(ctx context.Context, order order) (answer, error) {
	claim := interface {
		Locked(context.Context) (bool, error)
	}(dsync.NewLock(d.client, order.Key))
	if order.Family == "semaphore" {
		claim = dsync.NewSemaphore(d.client, order.Key)
	}
	isLocked, err := claim.Locked(ctx)
	if isLocked {
		return answer{"is": "locked"}, err
	}
	return answer{"is": "free"}, err
}
