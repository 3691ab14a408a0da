// Package redigo makes a client of dsync of a pool of redigo: of one server, or of the primary that the pool's dial
// function finds, by Sentinel for instance. redigo knows no clusters, and neither does this package.
package redigo

import (
	"context"
	"errors"

	"dsync-client"
	"github.com/gomodule/redigo/redis"
)

// New makes a client of a pool. It has connections of its own, which the pool's dial function opens: they are none of
// the pool's, and its limits do not matter. The function is called for each connection, so it can ask Sentinels for the
// primary each time. The name is what errors call the server, its address for instance.
func New(pool *redis.Pool, name string) *dsync.Client {
	open := func(ctx context.Context) (dsync.Conn, error) { return connect(ctx, pool, name) }
	return dsync.NewClient(func(context.Context, string) (dsync.Node, error) {
		return dsync.Node{Name: name, Connect: open}, nil
	})
}

func connect(ctx context.Context, pool *redis.Pool, name string) (dsync.Conn, error) {
	var opened redis.Conn
	var err error
	switch {
	case pool.DialContext != nil:
		opened, err = pool.DialContext(ctx)
	case pool.Dial != nil:
		opened, err = pool.Dial()
	default:
		err = dsync.Final(errors.New("redigo: the pool has neither Dial nor DialContext"))
	}
	if err != nil {
		return nil, reasonOf(err)
	}
	return &conn{opened, name}, nil
}

type conn struct {
	redis.Conn
	name string
}

func (c *conn) Interrupter() func() { return func() { c.Close() } }
func (c *conn) Address() string     { return c.name }

func (c *conn) Do(commands ...[]any) ([]any, error) {
	for _, command := range commands {
		if err := c.Send(command[0].(string), command[1:]...); err != nil {
			return nil, err
		}
	}
	if err := c.Flush(); err != nil {
		return nil, err
	}
	replies := make([]any, 0, len(commands))
	for range commands {
		// 0 is no time-out: the connection is closed by who waits too long.
		reply, err := redis.ReceiveWithTimeout(c.Conn, 0)
		if refusal, isRefusal := reasonOf(err).(dsync.ReplyError); isRefusal {
			reply = refusal
		} else if err != nil {
			return replies, err
		}
		replies = append(replies, plain(reply))
	}
	return replies, nil
}

// plain returns a reply with texts as dsync has them.
func plain(reply any) any {
	switch reply := reply.(type) {
	case []byte:
		return string(reply)
	case []any:
		for i := range reply {
			reply[i] = plain(reply[i])
		}
	}
	return reply
}

// reasonOf returns an error of the library as dsync knows it: a server may have refused what the dial function asks for.
func reasonOf(err error) error {
	var refusal redis.Error
	if errors.As(err, &refusal) {
		return dsync.ReplyError(refusal)
	}
	return err
}
