package dsync

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// For errors.Is. The errors themselves tell more, by errors.As: [*NotAcquired], [*HoldLost], [*NotConfirmed] and
// [*WorkFailed].
var (
	ErrNotAcquired  = errors.New("not acquired")
	ErrHoldLost     = errors.New("the hold is lost")
	ErrNotConfirmed = errors.New("not confirmed")
	ErrWorkFailed   = errors.New("the work has failed")
)

// NotAcquired says that a try was refused, or that the wait is over.
type NotAcquired struct {
	Key string
	// Holders are the first three that held the key when it was looked up just afterwards: none if others wait or the
	// key is paused, or if that could not be asked.
	Holders []Holder
	// State is that of INFO, such as exclusive, full, running, delayed or paused; "" if it is not known.
	State string
	// Err is why the last request had no answer, or the context's error; nil otherwise.
	Err error
}

func (e *NotAcquired) Error() string {
	text := quoted(e.Key) + " was not acquired"
	for nth, holder := range e.Holders {
		text += []string{": held by ", ", "}[min(nth, 1)] + holder.String()
	}
	if e.State == "paused" || e.State == "delayed" {
		text += "; it is " + e.State
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

func (e *NotAcquired) Is(target error) bool { return target == ErrNotAcquired }
func (e *NotAcquired) Unwrap() error        { return e.Err }

// HoldLost says that a hold has ended without its holder, or may have.
type HoldLost struct {
	Key   string
	Fence int64
	// Why is the reason, for people.
	Why string
	// Err is the last error of its renewal; nil if there was none.
	Err error
}

func (e *HoldLost) Error() string {
	text := fmt.Sprintf("the hold of %s with fence %d is lost: %s", quoted(e.Key), e.Fence, e.Why)
	if e.Err != nil {
		text += " (" + e.Err.Error() + ")"
	}
	return text
}

func (e *HoldLost) Is(target error) bool { return target == ErrHoldLost }
func (e *HoldLost) Unwrap() error        { return e.Err }

// NotConfirmed says that fewer replicas than wanted have confirmed a grant, or that work is done. The grant is
// withdrawn; the work is recorded at the primary.
type NotConfirmed struct {
	// Have is how many have confirmed it, Wanted how many should.
	Have, Wanted int
	// Err is what the server has replied instead, or nil.
	Err error
}

func (e *NotConfirmed) Error() string {
	text := fmt.Sprintf("not confirmed: by %d of %d replicas", e.Have, e.Wanted)
	if e.Wanted == 0 {
		text = "not confirmed: not synced to the primary's disk in time"
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

func (e *NotConfirmed) Is(target error) bool { return target == ErrNotConfirmed }

// WorkFailed says that work has failed as often as [MaxAttempts] allows.
type WorkFailed struct {
	Key string
	// Reason is that of the last attempt.
	Reason   string
	Attempts int
	// Err is the error of the last attempt of this call of Do, with [UntilDone]; nil otherwise.
	Err error
}

func (e *WorkFailed) Error() string {
	return fmt.Sprintf("the work %s was given up at attempt %d: %s", quoted(e.Key), e.Attempts, printable(e.Reason))
}

func (e *WorkFailed) Is(target error) bool { return target == ErrWorkFailed }
func (e *WorkFailed) Unwrap() error        { return e.Err }

// Holder is one of those who hold a key, as INFO shows it.
type Holder struct {
	Fence int64
	// Owner is the text that the holder gave, as it was given: a terminal may obey it. String escapes it.
	Owner string
	// Held is for how long it holds the key.
	Held time.Duration
	// LeaseLeft is how long its lease lasts unless it is renewed.
	LeaseLeft time.Duration
	// Rests is whether it has ended, and [MinHold] still keeps its place taken for RestLeft.
	Rests    bool
	RestLeft time.Duration
}

func (h Holder) String() string {
	owner := printable(h.Owner)
	if owner == "" {
		owner = "a client that gave no owner"
	}
	if h.Rests {
		return fmt.Sprintf("%s (fence %d, ended, rests for another %.1f s)", owner, h.Fence, h.RestLeft.Seconds())
	}
	return fmt.Sprintf("%s (fence %d, for %.1f s, %.1f s of lease left)",
		owner, h.Fence, h.Held.Seconds(), h.LeaseLeft.Seconds())
}

// quoted returns a text of others in quotation marks, without signs that a terminal obeys or that take no room.
func quoted(text string) string { return strconv.QuoteToGraphic(text) }

func printable(text string) string {
	shown := quoted(text)
	return strings.ReplaceAll(shown[1:len(shown)-1], `\"`, `"`)
}
