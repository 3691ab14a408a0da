// Package dsync has locks, fair semaphores, wait groups and work that is done once, for programs on many machines. They
// are kept by the dsync module of a Redis or Valkey server.
//
// Packages goredis and redigo make a [Client] of what a program has already: a client of go-redis, or a pool of redigo.
//
//	client := goredis.New(redis.NewClient(&redis.Options{Addr: "localhost:6379"}))
//	err := dsync.NewLock(client, "jobs:1").Do(ctx, func(ctx context.Context) error {
//		return work(ctx) // ctx is cancelled when the lock is lost
//	})
//
// A request waits in a queue of the server, first come, first served, on a connection of its own. It is repeated over
// broken connections and failovers with the same token, so that nothing is granted twice; a context that ends withdraws
// it. A hold is renewed at each third of its lease, over one connection for all holds of a client, for as long as the
// program refers to it. It counts as lost when the server says so, and when its lease, counted from the moment at which
// the last answered request was sent, is nearly over: then its [Hold.Context] is cancelled with a [*HoldLost] as the
// cause.
//
// What it logs goes to [slog.Default], with the attribute logger=dsync.
package dsync
