// Command dsync-bench tells what the Go client costs beside its library: `dsync-bench [go-redis|redigo]`, at the server
// of the port in $DSYNC_BENCH_PORT, which has the module. It prints one line of JSON for each library: the CPU time of
// this process for a cycle (acquire and release), over that of the library's own SET NX PX and EVALSHA; and for a
// renewal, over that of the library's own PEXPIRE. Both kinds take turns, so that a machine that slows down slows both.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"dsync-client"
	"dsync-client/goredis"
	dsyncredigo "dsync-client/redigo"
	redigo "github.com/gomodule/redigo/redis"
	"github.com/redis/go-redis/v9"
)

const (
	rounds         = 101
	cyclesOfARound = 100
	// The holds that are renewed side by side, each second: at a third of their lease.
	holds = 1000
	lease = 3 * time.Second
	// For how long they are renewed.
	renewing = 6 * time.Second
	// What a lock without the module is released with.
	unlock = `if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0`
)

// library is one, with a command of its own.
type library struct {
	do     func(words ...any) (any, error)
	client *dsync.Client
}

var background = context.Background()

func main() {
	address := "127.0.0.1:" + os.Getenv("DSYNC_BENCH_PORT")
	theirs := redis.NewClient(&redis.Options{Addr: address})
	pool := &redigo.Pool{MaxIdle: 1, Dial: func() (redigo.Conn, error) { return redigo.Dial("tcp", address) }}
	libraries := map[string]library{
		"go-redis": {func(words ...any) (any, error) { return theirs.Do(background, words...).Result() }, goredis.New(theirs)},
		"redigo": {func(words ...any) (any, error) {
			conn := pool.Get()
			defer conn.Close()
			return conn.Do(words[0].(string), words[1:]...)
		}, dsyncredigo.New(pool, address)},
	}
	names := []string{"go-redis", "redigo"}
	if len(os.Args) > 1 {
		names = os.Args[1:]
	}
	for _, name := range names {
		tested, isKnown := libraries[name]
		if !isKnown {
			log.Fatalf("no library %q", name)
		}
		raw, helper := tested.cycles()
		command := tested.commands()
		renewal := tested.renewals()
		line, err := json.Marshal(map[string]any{
			"client": name, "cycle": ratio(helper, raw), "renewal": ratio(renewal, command), "raw_us": us(raw),
			"helper_us": us(helper), "command_us": us(command), "renewal_us": us(renewal), "cycles": rounds * cyclesOfARound,
		})
		must(nil, err)
		fmt.Println(string(line))
	}
}

// cycles returns what a cycle costs with the library alone, and with the helper.
func (l library) cycles() (raw, helper time.Duration) {
	sha, err := l.do("SCRIPT", "LOAD", unlock)
	must(nil, err)
	script := text(sha)
	lock := dsync.NewLock(l.client, "bench:helper")
	rawCycle := func(n int) {
		token := strconv.Itoa(n)
		must(l.do("SET", "bench:raw", token, "NX", "PX", 30000))
		must(l.do("EVALSHA", script, 1, "bench:raw", token))
	}
	helperCycle := func(int) {
		hold, err := lock.Acquire(background)
		must(nil, err)
		must(nil, hold.Release(background))
	}
	// The first ones connect.
	cpuOf(100, rawCycle)
	cpuOf(100, helperCycle)
	var raws, helpers []time.Duration
	for round := 0; round < rounds; round++ {
		raws = append(raws, cpuOf(cyclesOfARound, rawCycle)/cyclesOfARound)
		helpers = append(helpers, cpuOf(cyclesOfARound, helperCycle)/cyclesOfARound)
	}
	return median(raws), median(helpers)
}

// median returns the middle one: another program that takes the processor costs a round its caches.
func median(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)/2]
}

// commands returns what one command of the library costs.
func (l library) commands() time.Duration {
	must(l.do("SET", "bench:command", "token", "PX", 30000))
	const many = 10_000
	return cpuOf(many, func(int) { must(l.do("PEXPIRE", "bench:command", 30000)) }) / many
}

// renewals returns what a renewal costs, with all that a hold costs while it is held.
func (l library) renewals() time.Duration {
	held := make([]*dsync.Hold, holds)
	for nth := range held {
		var err error
		held[nth], err = dsync.NewLock(l.client, "bench:"+strconv.Itoa(nth), dsync.Lease(lease)).Acquire(background)
		must(nil, err)
	}
	before := l.renewed()
	cost := cpuOf(1, func(int) { time.Sleep(renewing) })
	renewed := l.renewed() - before
	for _, hold := range held {
		must(nil, hold.Release(background))
	}
	return cost / time.Duration(renewed)
}

// renewed returns how many renewals the server has carried out.
func (l library) renewed() int {
	told, err := l.do("INFO", "commandstats")
	must(nil, err)
	_, counted, _ := strings.Cut(strings.ToLower(text(told)), "cmdstat_dlock.renew:calls=")
	digits, _, _ := strings.Cut(counted, ",")
	calls, err := strconv.Atoi(digits)
	if counted == "" {
		return 0
	}
	must(nil, err)
	return calls
}

// cpuOf returns how much of the processor this process has used for so many times the work.
func cpuOf(times int, work func(nth int)) time.Duration {
	before := cpu()
	for nth := 0; nth < times; nth++ {
		work(nth)
	}
	return cpu() - before
}

func cpu() time.Duration {
	var used syscall.Rusage
	must(nil, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func text(reply any) string {
	if bytes, isBytes := reply.([]byte); isBytes {
		return string(bytes)
	}
	return fmt.Sprint(reply)
}

func ratio(a, b time.Duration) float64 { return float64(int64(100*a/b)) / 100 }

func us(time time.Duration) float64 { return float64(time.Nanoseconds()/100) / 10 }

func must(_ any, err error) {
	if err != nil {
		log.Fatal(err)
	}
}
