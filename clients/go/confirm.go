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
func (c confirmation) perform(ctx context.Context, s *session, end time.Duration, commands ...[]any) ([]any, error) {
	sent := commands[:len(commands):len(commands)]
	switch {
	case c.isAll:
		sent = append(sent, []any{"ROLE"})
	case c.isWanted():
		sent = append(sent, c.command())
	}
	replies, err := s.exchange(ctx, end, sent...)
	if err != nil || !c.isWanted() {
		return replies[:min(len(replies), len(commands))], err
	}
	last, replies := replies[len(commands)], replies[:len(commands)]
	switch {
	case len(commands) > 0 && !slices.ContainsFunc(replies, needsConfirmation):
		return replies, nil
	case c.isAll:
		return replies, c.waitForAll(ctx, s, end, last)
	}
	return replies, c.judge(last)
}

// waitForAll waits for as many replicas as the reply to ROLE has, at least one.
func (c confirmation) waitForAll(ctx context.Context, s *session, end time.Duration, role any) error {
	c.isAll, c.replicas = false, 1
	items, _ := role.([]any)
	if len(items) < 3 || text(items[0]) != "master" {
		return c.judge(role)
	}
	attached, _ := items[2].([]any)
	c.replicas = max(1, len(attached))
	_, err := c.perform(ctx, s, end)
	return err
}

func (c confirmation) command() []any {
	if c.isDisk {
		return []any{"WAITAOF", 1, c.replicas, millis(c.within)}
	}
	return []any{"WAIT", c.replicas, millis(c.within)}
}

// judge reads the reply to WAIT, or to WAITAOF: two numbers, of this server and of replicas. An error of a replica passes,
// and its role confirms nothing.
func (c confirmation) judge(reply any) error {
	here, have := int64(1), number(reply)
	switch reply := reply.(type) {
	case ReplyError:
		switch {
		case strings.Contains(string(reply), "unknown command"):
			return Final(fmt.Errorf("Disk needs WAITAOF, of Redis 7.2 or Valkey: %w", reply))
		case passes(reply), strings.Contains(string(reply), "replica instances"):
			return &NotConfirmed{Wanted: c.replicas, Err: reply}
		}
		return reply
	case []any:
		here = 0
		if len(reply) == 2 {
			here, have = number(reply[0]), number(reply[1])
		}
	}
	if here < 1 || have < int64(c.replicas) {
		return &NotConfirmed{Have: int(have), Wanted: c.replicas}
	}
	return nil
}

func isNotConfirmed(err error) bool { return errors.Is(err, ErrNotConfirmed) }
