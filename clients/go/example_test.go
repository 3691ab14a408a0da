package dsync_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"time"

	"dsync-client"
	"dsync-client/goredis"
	dsyncredigo "dsync-client/redigo"
	redigo "github.com/gomodule/redigo/redis"
	"github.com/redis/go-redis/v9"
)

var (
	ctx    context.Context
	client *dsync.Client
	parts  []string
)

func store(ctx context.Context, part string, fence int64) error { return nil }
func report(ctx context.Context) error                          { return nil }

func Example() {
	client := goredis.New(redis.NewClient(&redis.Options{Addr: "localhost:6379"}))
	defer client.Close()

	lock := dsync.NewLock(client, "jobs:1", dsync.Lease(30*time.Second), dsync.Wait(time.Minute))
	err := lock.Do(ctx, func(ctx context.Context) error {
		for _, part := range parts {
			// The context is cancelled when the lock is lost. The store refuses a fence below the highest it has seen.
			if err := store(ctx, part, dsync.HoldOf(ctx).Fence()); err != nil {
				return err
			}
		}
		return nil
	})
	if errors.Is(err, dsync.ErrNotAcquired) {
		fmt.Println(err) // "jobs:1" was not acquired: held by ann@web-2:71 (fence 1795362612032004, for 2.1 s, …
	}
}

func ExampleLock_Acquire() {
	lock := dsync.NewLock(client, "jobs:1")

	hold, err := lock.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer hold.Release(ctx)

	request, _ := http.NewRequestWithContext(hold.Context(), "POST", "http://store/jobs/1", nil)
	if _, err := http.DefaultClient.Do(request); err != nil && hold.Err() != nil {
		fmt.Println(hold.Err()) // the hold of "jobs:1" with fence 1795362612032004 is lost: no renewal was answered in time
	}
}

func ExampleNewSemaphore() {
	exports := dsync.NewSemaphore(client, "exports",
		dsync.Limit(10), dsync.Lane("tenant:7"), dsync.LaneLimit(4)) // tenants share; each has four at most
	err := exports.Do(ctx, report)

	gpus := dsync.NewSemaphore(client, "gpus", dsync.Limit(4), dsync.Index())
	hold, err := gpus.TryAcquire(ctx) // hold.Index() is 0, 1, 2 or 3, and nobody else's

	tick := dsync.NewLock(client, "tick", dsync.MinHold(55*time.Second)) // taken for 55 s, also if the work takes less

	both, err := dsync.AllOf(ctx, tick, gpus) // in the order of their names: no deadlock
	_, _, _ = hold, both, err
}

func ExampleNewGroup() {
	batch := dsync.NewGroup(client, "import:7", dsync.Limit(4)) // at most four members at a time
	owed, err := batch.Expect(ctx, len(parts))                  // before anybody waits

	for range parts {
		go batch.Do(ctx, report) // on any machine; after an error its job stays owed
	}

	round, err := batch.Wait(ctx) // round.Done, round.Lapsed
	_, _, _ = owed, round, err
}

type Invoice struct{ Number int }

func makeInvoice(ctx context.Context) (Invoice, error) { return Invoice{}, nil }

func ExampleNewOnce() {
	once := dsync.NewOnce[Invoice](client, "invoice:2026-11",
		dsync.MaxAttempts(3), dsync.RetryDelay(time.Minute), dsync.Forever())

	invoice, err := once.Do(ctx, makeInvoice) // whoever comes first makes it; everybody gets it, at once or days later
	_, _ = invoice, err
}

func ExampleReplicas() {
	lock := dsync.NewLock(client, "ledger", dsync.Replicas(1), dsync.Within(200*time.Millisecond))

	hold, err := lock.Acquire(ctx)
	var unconfirmed *dsync.NotConfirmed
	if errors.As(err, &unconfirmed) {
		fmt.Println(unconfirmed.Have, "of", unconfirmed.Wanted)
	}
	_ = hold
}

func ExampleNewClient() {
	// go-redis: one server, Sentinel, a cluster.
	client = goredis.New(redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: "locks", SentinelAddrs: []string{"sentinel-1:26379", "sentinel-2:26379"},
	}))
	client = goredis.New(redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"node-1:6379", "node-2:6379"}}))

	// redigo: a pool, for its dial function.
	pool := &redigo.Pool{DialContext: func(ctx context.Context) (redigo.Conn, error) {
		return redigo.DialURLContext(ctx, os.Getenv("REDIS_URL"))
	}}
	client = dsyncredigo.New(pool, "redis-1:6379")
}
