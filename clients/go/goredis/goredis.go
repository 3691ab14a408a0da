// Package goredis makes a client of dsync of a client of go-redis: of one server, of Sentinels, or of a cluster.
//
// The connections are its own, made with the options of the client: address, dialer, TLS, user, password, database. Its
// pool, its time-outs and its retries do not matter.
package goredis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"time"

	"dsync-client"
	"github.com/redis/go-redis/v9"
)

// New makes a client of a *redis.Client, also one of redis.NewFailoverClient, or of a *redis.ClusterClient. A
// *redis.Ring has no server that a key stays at: its error is that of each request.
func New(client redis.UniversalClient) *dsync.Client {
	return dsync.NewClient(func(ctx context.Context, key string) (dsync.Node, error) {
		switch client := client.(type) {
		case *redis.Client:
			return node(client.Options(), client.Options().Addr, nil, false), nil
		case *redis.ClusterClient:
			primary, err := client.MasterForKey(ctx, key)
			if err != nil {
				return dsync.Node{}, err
			}
			lookUp := func() { client.ReloadState(context.Background()) }
			return node(primary.Options(), primary.Options().Addr, lookUp, false), nil
		}
		err := fmt.Errorf("goredis: %T is no client of one server, of Sentinels or of a cluster", client)
		return dsync.Node{}, dsync.Final(err)
	})
}

// failover is what the library has as address where Sentinel names the server.
const failover = "FailoverClient"

// node returns the one of this address. Where Sentinel names it, the dialer asks for it each time.
func node(options *redis.Options, address string, lookUp func(), isAsked bool) dsync.Node {
	open := func(ctx context.Context) (dsync.Conn, error) { return connect(ctx, *options, address, isAsked) }
	switch {
	case isAsked:
		return dsync.Node{Name: address + " by ASK", Connect: open, LookUp: lookUp}
	case address == failover:
		return dsync.Node{Name: "the primary of Sentinel", Connect: open}
	}
	return dsync.Node{Name: address, Connect: open, LookUp: lookUp, Asked: func(address string) dsync.Node {
		return node(options, address, lookUp, true)
	}}
}

// connect opens a connection with the options of the client, which has no time-outs and repeats nothing.
func connect(ctx context.Context, options redis.Options, address string, isAsked bool) (dsync.Conn, error) {
	// A Sentinel that is not reached is dialled for as long as there is time: this leaves some to tell what others say.
	dialling := ctx
	if end, isLimited := ctx.Deadline(); isLimited && address == failover {
		limited, cancel := context.WithTimeout(ctx, time.Until(end)/2)
		defer cancel()
		dialling = limited
	}
	// Dialled here, because the library goes on dialling when the context has ended, and logs each failure.
	dialled, err := options.Dialer(dialling, options.Network, address)
	if err != nil {
		return nil, ofSentinels(reasonOf(err))
	}
	options.Dialer = func(context.Context, string, string) (net.Conn, error) { return dialled, nil }
	options.Protocol = 2
	options.PoolSize, options.MinIdleConns, options.MaxIdleConns, options.MaxActiveConns = 1, 0, 0, 0
	options.ConnMaxIdleTime, options.ConnMaxLifetime = -1, 0
	// No deadlines are set: not all connections have them, those through SSH for instance.
	options.ReadTimeout, options.WriteTimeout = -2, -2
	// The client writes to its configuration of notifications, which RESP2 does not have.
	options.MaxRetries, options.DialerRetries, options.Limiter, options.MaintNotificationsConfig = -1, 1, nil, nil
	// Commands and replies are short, and those of the library are 32 KiB.
	options.ReadBufferSize, options.WriteBufferSize = 4096, 4096
	opened := &conn{dialled: dialled, address: address, isAsked: isAsked}
	opened.hasDeadlines = dialled.SetDeadline(time.Time{}) == nil
	theirs := options.OnConnect
	options.OnConnect = func(ctx context.Context, greeted *redis.Conn) (err error) {
		if theirs != nil {
			err = theirs(ctx, greeted)
		}
		opened.isGreeted = err == nil
		return err
	}
	opened.client = redis.NewClient(&options)
	// With the pool, each command would look at the socket first.
	opened.commands = opened.client.Conn()
	return opened, nil
}

// conn is one connection, with a client that it has for itself. The first command greets the server.
type conn struct {
	client   *redis.Client
	commands *redis.Conn
	dialled  net.Conn
	address  string
	// IsAsked is whether the node answers for keys of a slot that it does not have yet. IsGreeted is set when the server
	// has taken what comes before the first command.
	isAsked, isGreeted, hasDeadlines bool
}

// Interrupter is nil before the greeting, which can wait for the program's provider of credentials.
func (c *conn) Interrupter() func() {
	if !c.isGreeted || !c.hasDeadlines {
		return nil
	}
	return func() { _ = c.dialled.SetDeadline(time.Unix(1, 0)) }
}

func (c *conn) Do(commands ...[]any) ([]any, error) {
	ctx := context.Background()
	pipeline := c.commands.Pipeline()
	asked := make([]*redis.Cmd, len(commands))
	for i, command := range commands {
		if c.isAsked {
			pipeline.Do(ctx, "ASKING")
		}
		asked[i] = pipeline.Do(ctx, command...)
	}
	_, failed := pipeline.Exec(ctx)
	if !c.isGreeted {
		return nil, dsync.Unsent(reasonOf(failed))
	}
	replies := make([]any, 0, len(asked))
	for _, command := range asked {
		reply, err := command.Result()
		refusal, isRefusal := reasonOf(err).(dsync.ReplyError)
		switch {
		case reply != nil, err == redis.Nil:
			// It may have the error of a later command besides.
		case isRefusal:
			reply = refusal
		case err == nil: // There is no connection.
			return replies, reasonOf(failed)
		default:
			return replies, err
		}
		replies = append(replies, reply)
	}
	return replies, nil
}

// reasonOf returns an error of the library as dsync knows it: a server may have refused its greeting.
func reasonOf(err error) error {
	var refusal redis.Error
	if errors.As(err, &refusal) {
		return dsync.ReplyError(refusal.Error())
	}
	return err
}

// ofSentinels returns the error where no Sentinel has named the primary. The library has it as text, a line for each of
// them without its address. One that refuses says more than one that is not reached, and no repetition mends it if all do.
func ofSentinels(err error) error {
	const none = "redis: all sentinels specified in configuration are unreachable: "
	lines, isTold := strings.CutPrefix(err.Error(), none)
	if !isTold {
		return err
	}
	refused := refuses.FindAllString(lines, -1)
	if len(refused) == 0 {
		return errors.New("no Sentinel is reached: " + lines)
	}
	err = errors.New("a Sentinel refuses: " + refused[0])
	if len(refused) <= strings.Count(lines, "\n") {
		return err
	}
	return dsync.Final(err)
}

var refuses = regexp.MustCompile(`(?m)^(WRONGPASS|NOAUTH|NOPERM|tls: failed to verify certificate)\b.*`)

// Address is that of the server, also where Sentinel has named it.
func (c *conn) Address() string {
	if c.address == failover {
		return c.dialled.RemoteAddr().String()
	}
	return c.address
}

func (c *conn) Close() error {
	c.commands.Close()
	c.client.Close()
	return c.dialled.Close()
}
