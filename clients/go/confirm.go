package dsync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// confirmation is what a grant, a renewal and a DONE need besides their answer: an answer that is not confirmed is no
// answer. The zero value needs nothing.
type confirmation struct {
	replicas      int
	isAll, isDisk bool
	within        time.Duration
}

func (c confirmation) isWanted() bool { return c.replicas > 0 || c.isAll || c.isDisk }

// perform sends the commands in one write, and behind them what confirms them; without commands it confirms what the
// connection has written before. It returns the replies of the commands, with an error those that have come before it.
// The error of replies that are not confirmed is a *NotConfirmed.
func (c confirmation) perform(ctx context.Context, s *session, commands ...[]any) ([]any, error) {
	sent := commands[:len(commands):len(commands)]
	switch {
	case c.isAll:
		sent = append(sent, []any{"ROLE"})
	case c.isWanted():
		sent = append(sent, c.command(c.replicas))
	}
	replies, err := s.exchange(ctx, sent...)
	if err != nil || !c.isWanted() {
		return replies[:min(len(replies), len(commands))], err
	}
	last, replies := replies[len(commands)], replies[:len(commands)]
	switch {
	case len(commands) > 0 && !slices.ContainsFunc(replies, needsConfirmation):
		return replies, nil
	case c.isAll:
		return replies, c.waitForAll(ctx, s, last)
	}
	return replies, c.judge(last, c.replicas)
}

// waitForAll waits for as many replicas as the reply to ROLE has, at least one.
func (c confirmation) waitForAll(ctx context.Context, s *session, role any) error {
	if refusal, isRefusal := role.(ReplyError); isRefusal {
		return c.refused(refusal, 1)
	}
	items, _ := role.([]any)
	if len(items) < 3 || text(items[0]) != "master" {
		return &NotConfirmed{Wanted: 1}
	}
	attached, _ := items[2].([]any)
	wanted := max(1, len(attached))
	replies, err := s.exchange(ctx, c.command(wanted))
	if err != nil {
		return err
	}
	return c.judge(replies[0], wanted)
}

func (c confirmation) command(replicas int) []any {
	if c.isDisk {
		return []any{"WAITAOF", 1, replicas, millis(c.within)}
	}
	return []any{"WAIT", replicas, millis(c.within)}
}

// judge reads the reply to WAIT, or to WAITAOF: two numbers, of this server and of replicas.
func (c confirmation) judge(reply any, wanted int) error {
	here, have := int64(1), number(reply)
	switch reply := reply.(type) {
	case ReplyError:
		return c.refused(reply, wanted)
	case []any:
		if len(reply) != 2 {
			return unexpected(reply)
		}
		here, have = number(reply[0]), number(reply[1])
	}
	if here < 1 || have < int64(wanted) {
		return &NotConfirmed{Have: int(have), Wanted: wanted}
	}
	return nil
}

// refused returns the error for an error that ROLE, WAIT or WAITAOF has replied. That of a replica passes.
func (c confirmation) refused(reply ReplyError, wanted int) error {
	switch {
	case strings.Contains(string(reply), "unknown command"):
		return Final(fmt.Errorf("Disk needs WAITAOF, of Redis 7.2 or Valkey: %w", reply))
	case passes(reply), strings.Contains(string(reply), "replica instances"):
		return &NotConfirmed{Wanted: wanted, Err: reply}
	}
	return reply
}

func isNotConfirmed(err error) bool { return errors.Is(err, ErrNotConfirmed) }
