package dsync

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// mostIdle is how many idle connections to a server a client keeps.
const mostIdle = 8

// ErrClosed is the error of a request whose [Client] is closed.
var ErrClosed = errors.New("the client is closed")

// Client is what locks, semaphores, groups and works are made with. It has connections of its own, and renews all
// holds. One is enough for a program. Any number of goroutines may use it.
type Client struct {
	findNode Find
	// HasFound is whether a node was found before: libraries learn a cluster with the first one.
	hasFound atomic.Bool
	// Lines are those of renewals, by their lineKey.
	lines    sync.Map
	isClosed atomic.Bool

	mu sync.Mutex
	// Idle are connections by the name of their node.
	idle map[string][]Conn
}

// NewClient makes a client of servers. Packages goredis and redigo do it for their libraries.
func NewClient(find Find) *Client { return &Client{findNode: find, idle: map[string][]Conn{}} }

// Close closes the connections. Requests that wait end with [ErrClosed], and holds are no longer renewed: so close it
// when they are released.
func (c *Client) Close() error {
	c.isClosed.Store(true)
	c.mu.Lock()
	idle := c.idle
	c.idle = nil
	c.mu.Unlock()
	for _, conns := range idle {
		for _, conn := range conns {
			conn.Close()
		}
	}
	return nil
}

// keepIdle keeps a connection for other requests, unless there are enough.
func (c *Client) keepIdle(node string, conn Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed.Load() || len(c.idle[node]) >= mostIdle {
		return false
	}
	c.idle[node] = append(c.idle[node], conn)
	return true
}

// takeIdle returns a connection to a node that nobody uses, or nil.
func (c *Client) takeIdle(node string) Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	conns := c.idle[node]
	if len(conns) == 0 {
		return nil
	}
	last := len(conns) - 1
	c.idle[node] = conns[:last]
	return conns[last]
}

func (c *Client) find(ctx context.Context, key string) (Node, error) {
	if c.hasFound.Load() {
		return c.findNode(ctx, key)
	}
	ctx, cancel := limit(ctx, now()+answerWithin)
	defer cancel()
	node, err := until(ctx, func() (Node, error) { return c.findNode(ctx, key) }, func(Node) {})
	c.hasFound.Store(err == nil)
	return node, err
}

// until returns what the work returns, or the context's cause when that ends: libraries go on then. What comes late is
// thrown away.
func until[T any](ctx context.Context, work func() (T, error), throwAway func(T)) (T, error) {
	var result T
	var err error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		result, err = work()
	}()
	select {
	case <-ended:
		return result, err
	case <-ctx.Done():
		go func() {
			if <-ended; err == nil {
				throwAway(result)
			}
		}()
		return *new(T), context.Cause(ctx)
	}
}

// session sends the commands of one request, one after the other over one connection for as long as that is of use.
type session struct {
	request
	// Node is where the key was looked for last, and next where it is to be looked for, if that is known.
	node, next Node
	// At is what errors call the server that was asked last.
	at string
	// Conn is nil before the first command, and after one whose replies have not all come: what comes late would be taken
	// for the next one.
	conn Conn
}

// do sends a command with its confirmation, and waits so long for the answer. With *NotConfirmed it returns the reply,
// too.
func (s *session) do(ctx context.Context, within time.Duration, confirm confirmation, command []any) (any, error) {
	replies, err := s.send(ctx, within, confirm, command)
	return s.reply(ctx, replies, 0, err)
}

// reply returns a reply of those that send has returned with this error; a refusal is its error.
func (s *session) reply(ctx context.Context, replies []any, nth int, err error) (any, error) {
	if nth >= len(replies) {
		return nil, err
	}
	refusal, isRefusal := replies[nth].(ReplyError)
	switch address := refusal.asked(); {
	case !isRefusal:
		return replies[nth], err
	case address != "" && s.node.Asked != nil:
		s.close(false)
		s.next = s.node.Asked(address)
	default:
		s.heed(ctx, refusal)
	}
	return nil, refusal
}

// send is do of several commands, or of none: then it waits alone for the confirmation of what this connection has
// done. Refusals are among the replies.
func (s *session) send(ctx context.Context, within time.Duration, confirm confirmation, commands ...[]any) ([]any, error) {
	end := now() + within + confirm.within
	var replies []any
	err := s.open(ctx, end)
	if err == nil {
		replies, err = confirm.perform(ctx, s, end, commands...)
	}
	s.heed(ctx, err)
	return replies, err
}

// limit returns a context that ends at this moment of now().
func limit(ctx context.Context, end time.Duration) (context.Context, context.CancelFunc) {
	within := end - now()
	return context.WithTimeoutCause(ctx, within, noAnswer(within))
}

func noAnswer(within time.Duration) error {
	return fmt.Errorf("no answer within %v", within.Round(10*time.Millisecond))
}

func (s *session) open(ctx context.Context, end time.Duration) error {
	if s.conn != nil {
		return nil
	}
	if s.client.isClosed.Load() {
		s.at = "no server is asked"
		return Final(ErrClosed)
	}
	var err error
	if s.node, s.next = s.next, (Node{}); s.node.Connect == nil {
		s.node, err = s.client.find(ctx, s.key)
	}
	if s.at = s.node.Name; err != nil {
		s.at = "no server is found"
		return Unsent(err)
	}
	if s.conn = s.client.takeIdle(s.node.Name); s.conn == nil {
		ctx, cancel := limit(ctx, end)
		defer cancel()
		connect := s.node.Connect
		s.conn, err = until(ctx, func() (Conn, error) { return connect(ctx) }, func(late Conn) { late.Close() })
	}
	if err != nil {
		return Unsent(err)
	}
	s.at = s.conn.Address()
	return nil
}

// exchange sends the commands in one write, and returns their replies. The connection ends with the context and at the
// end, whatever the library does then: a greeting can wait for the user's own provider of credentials.
func (s *session) exchange(ctx context.Context, end time.Duration, commands ...[]any) ([]any, error) {
	conn, begun := s.conn, now()
	var replies []any
	var err error
	if interrupt := conn.Interrupter(); interrupt == nil {
		limited, cancel := limit(ctx, end)
		defer cancel()
		replies, err = until(limited, func() ([]any, error) { return conn.Do(commands...) }, func([]any) {})
	} else {
		tick()
		late, isWanted := time.AfterFunc(end-begun, interrupt), context.AfterFunc(ctx, interrupt)
		replies, err = conn.Do(commands...)
		if isInTime := late.Stop(); !isWanted() {
			err = context.Cause(ctx)
		} else if !isInTime {
			err = noAnswer(end - begun)
		}
	}
	if err != nil {
		s.close(true)
	}
	return replies, err
}

// heed has the server looked up afresh if another one may have the key after this error, unless the caller has given up.
func (s *session) heed(ctx context.Context, err error) {
	code := codeOf(err)
	mayBeElsewhere := passing[code] || code == "" && !isNotConfirmed(err)
	switch {
	case code != "" && isUnsent(err):
		s.close(true) // Only its greeting was refused.
		return
	case err == nil, !passes(err), !mayBeElsewhere:
		return
	}
	s.close(true)
	if ctx.Err() == nil {
		// The idle connections may be of the same kind as the one that failed.
		for conn := s.client.takeIdle(s.node.Name); conn != nil; conn = s.client.takeIdle(s.node.Name) {
			go conn.Close()
		}
		if s.node.LookUp != nil {
			s.node.LookUp()
		}
	}
}

// close keeps the connection for other requests, unless it is broken. Nobody waits for its end: through SSH to a host that
// is gone it takes long.
func (s *session) close(isBroken bool) {
	if conn := s.conn; conn != nil && (isBroken || !s.client.keepIdle(s.node.Name, conn)) {
		go conn.Close()
	}
	s.conn = nil
}

// named returns an error with the key and the address, and without the token.
func (s *session) named(err error) error {
	if err == nil {
		return nil
	}
	var refusal ReplyError
	if errors.As(err, &refusal) {
		if worded := refusal.worded(s.token); worded != refusal {
			err = worded
		}
	}
	return fmt.Errorf("%s: %s: %w", quoted(s.key), s.at, err)
}

func logger() *slog.Logger { return slog.Default().With("logger", "dsync") }
