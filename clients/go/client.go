package dsync

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
)

const (
	// answerWithin is how long an answer is waited for that a server gives at once; then the server is looked up
	// afresh.
	answerWithin = 2 * time.Second
	// A client keeps so many idle connections to a server at most.
	mostIdle = 8
)

// ErrClosed is the error of a request whose [Client] is closed.
var ErrClosed = errors.New("the client is closed")

// Client is what locks, semaphores, groups and works are made with. It has connections of its own, and renews all
// holds. One is enough for a program. Any number of goroutines may use it.
type Client struct {
	server Server

	mu       sync.Mutex
	isClosed bool
	idle     map[string][]*link

	// Lines are those of renewals, by their lineKey.
	lines sync.Map
}

// NewClient makes a client of a server. Packages goredis and redigo do it for their libraries.
func NewClient(server Server) *Client {
	return &Client{server: server, idle: map[string][]*link{}}
}

// Close closes the connections. Requests that wait end with [ErrClosed], and holds are no longer renewed: so close it
// when they are released.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isClosed = true
	for _, links := range c.idle {
		for _, link := range links {
			link.conn.Close()
		}
	}
	c.idle = nil
	return nil
}

// link is a connection of a client.
type link struct {
	conn  Conn
	route string
	// A reply is overdue or has not come: what comes late would be taken for the next one.
	isBroken bool
}

// exchange sends the commands in one write, and returns their replies. The connection ends with the context.
func (l *link) exchange(ctx context.Context, commands ...[]string) ([]any, error) {
	stop := context.AfterFunc(ctx, func() { l.conn.Close() })
	replies, err := l.conn.Do(commands...)
	if !stop() || err != nil {
		l.isBroken = true
		l.conn.Close()
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return replies, err
}

// link returns an idle connection to the server that has the key, or a new one, and its route.
func (c *Client) link(ctx context.Context, key string) (*link, string, error) {
	route, err := c.route(ctx, key)
	if err != nil {
		return nil, route, err
	}
	c.mu.Lock()
	if links := c.idle[route]; len(links) > 0 {
		last := links[len(links)-1]
		c.idle[route] = links[:len(links)-1]
		c.mu.Unlock()
		return last, route, nil
	}
	c.mu.Unlock()
	conn, err := until(ctx, func() (Conn, error) { return c.server.Connect(ctx, key) }, func(late Conn) { late.Close() })
	return &link{conn: conn, route: route}, route, err
}

func (c *Client) route(ctx context.Context, key string) (string, error) {
	return until(ctx, func() (string, error) { return c.server.Route(ctx, key) }, func(string) {})
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
		var nothing T
		return nothing, context.Cause(ctx)
	}
}

// giveBack keeps a connection for the next request.
func (c *Client) giveBack(link *link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if link.isBroken || c.isClosed || len(c.idle[link.route]) >= mostIdle {
		link.conn.Close()
		return
	}
	c.idle[link.route] = append(c.idle[link.route], link)
}

// lookUp looks the servers up afresh. The idle connections of the route may be of the same kind as the one that failed.
func (c *Client) lookUp(route string) {
	c.mu.Lock()
	for _, link := range c.idle[route] {
		link.conn.Close()
	}
	delete(c.idle, route)
	c.mu.Unlock()
	c.server.LookUp()
}

// session sends the commands of one request, one after the other over one connection for as long as that is of use.
type session struct {
	request
	// Route is where the key was looked for last.
	route string
	link  *link
}

// do sends a command with its confirmation, and waits so long for the answer. With *NotConfirmed it returns the reply,
// too.
func (s *session) do(ctx context.Context, within time.Duration, confirm confirmation, command []string) (any, error) {
	replies, err := s.send(ctx, within, confirm, command)
	return s.reply(ctx, replies, 0, err)
}

// reply returns a reply of those that send has returned with this error; a refusal is its error.
func (s *session) reply(ctx context.Context, replies []any, nth int, err error) (any, error) {
	if nth >= len(replies) {
		return nil, err
	}
	if refusal, isRefusal := replies[nth].(ReplyError); isRefusal {
		return nil, s.failed(ctx, refusal)
	}
	return replies[nth], err
}

// send is do of several commands, or of none: then it waits alone for the confirmation of what this connection has
// done. Refusals are among the replies.
func (s *session) send(ctx context.Context, within time.Duration, confirm confirmation, commands ...[]string) ([]any, error) {
	limited, cancel := limit(ctx, within+confirm.within)
	defer cancel()
	if err := s.open(limited); err != nil {
		return nil, s.failed(ctx, err)
	}
	replies, err := confirm.perform(limited, s.link, commands...)
	return replies, s.failed(ctx, err)
}

func limit(ctx context.Context, within time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, within, fmt.Errorf("no answer within %v", within.Round(time.Millisecond)))
}

func (s *session) open(ctx context.Context) error {
	s.client.mu.Lock()
	isClosed := s.client.isClosed
	s.client.mu.Unlock()
	if isClosed {
		return Final(ErrClosed)
	}
	if s.link != nil {
		return nil
	}
	opened, route, err := s.client.link(ctx, s.key)
	if s.route = route; err == nil {
		s.link = opened
	}
	return err
}

// failed returns the error with the key and the address. A connection that is of no further use is closed, and the
// server looked up afresh unless the caller has given up.
func (s *session) failed(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	isBroken := s.link == nil || s.link.isBroken
	if isBroken || passes(err) && speaksOfAnother(err) && !isNotConfirmed(err) {
		s.close(true)
		if ctx.Err() == nil && passes(err) {
			s.client.lookUp(s.route)
		}
	}
	return s.named(err)
}

// named returns the error with the key and the address, instead of those of another request that has shared the write. It
// does not show the token: servers repeat the arguments of commands that they do not know.
func (s *session) named(err error) error {
	if err == nil {
		return nil
	}
	var shared *requestError
	if errors.As(err, &shared) {
		err = shared.err
	}
	var refusal ReplyError
	if errors.As(err, &refusal) && s.token != "" && strings.Contains(string(refusal), s.token) {
		err = ReplyError(strings.ReplaceAll(string(refusal), s.token, "<token>"))
	}
	return &requestError{key: s.key, address: s.route, err: err}
}

// close gives the connection back, or ends it.
func (s *session) close(isBroken bool) {
	if s.link != nil {
		s.link.isBroken = s.link.isBroken || isBroken
		s.client.giveBack(s.link)
		s.link = nil
	}
}

func logger() *slog.Logger { return slog.Default().With("logger", "dsync") }
