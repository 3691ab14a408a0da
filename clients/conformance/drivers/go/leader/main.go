// Command leader is a leader in Go: `leader go-redis|redigo keeps|forgets`.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"dsync-client"
	"dsync-client/goredis"
	dsyncredigo "dsync-client/redigo"
	redigo "github.com/gomodule/redigo/redis"
	"github.com/redis/go-redis/v9"
)

var steps = 150

func main() {
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})))
	go func() {
		for ; ; time.Sleep(time.Second) {
			runtime.GC()
		}
	}()
	lease, _ := strconv.Atoi(os.Getenv("LEADER_LEASE"))
	lock := dsync.NewLock(connect(), os.Getenv("LEADER_KEY"), dsync.Lease(time.Duration(lease)*time.Millisecond))
	for {
		for err := standForElection(lock); err != nil; err = errors.Unwrap(err) {
			fmt.Fprintf(os.Stderr, "%v %+v %#v\n", err, err, err)
			time.Sleep(100 * time.Millisecond)
		}
	}
}

func connect() *dsync.Client {
	url := os.Getenv("DSYNC_URL")
	if os.Args[1] == "redigo" {
		dial := func(ctx context.Context) (redigo.Conn, error) { return redigo.DialURLContext(ctx, url) }
		return dsyncredigo.New(&redigo.Pool{DialContext: dial}, "the server")
	}
	options, _ := redis.ParseURL(url)
	return goredis.New(redis.NewClient(options))
}

func standForElection(lock *dsync.Lock) error {
	hold, err := lock.Acquire(context.Background())
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%v %#v\n", hold, hold)
	if os.Args[2] == "keeps" {
		lead(hold.Fence(), func() bool { return hold.Err() != nil })
		return hold.Release(context.Background())
	}
	// What is made of a context keeps the hold; its channel does not.
	if rand.Intn(2) == 0 {
		derived := context.WithValue(hold.Context(), &steps, steps)
		lead(hold.Fence(), func() bool { return derived.Err() != nil })
		return context.Cause(derived)
	}
	lost := hold.Context().Done()
	lead(hold.Fence(), func() bool {
		select {
		case <-lost:
			return true
		default:
			return false
		}
	})
	return nil
}

func lead(fence int64, isLost func() bool) {
	for step := 0; step < steps; step++ {
		start := now()
		runtime.GC()
		time.Sleep(2*time.Millisecond + time.Duration(rand.Int63n(int64(18*time.Millisecond))))
		end := now()
		if isLost() {
			return
		}
		fmt.Println(fence, start, end)
	}
}

// now is CLOCK_MONOTONIC, which all processes of a machine have in common.
func now() int64 {
	var spec syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&spec)), 0)
	return spec.Nano()
}
