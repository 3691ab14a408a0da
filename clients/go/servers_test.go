package dsync_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"dsync-client"
	"dsync-client/goredis"
	dsyncredigo "dsync-client/redigo"
	redigo "github.com/gomodule/redigo/redis"
	"github.com/redis/go-redis/v9"
)

// soon is how long something may take that must come.
const soon = 20 * time.Second

// server is a server of a test, which ends with it.
type server struct {
	t       *testing.T
	address string
	process *os.Process
	// Admin sends commands of the test's own.
	admin *redis.Client
}

// startServer starts a server on a free port of 127.0.0.1, with the module unless that is left out.
func startServer(t *testing.T, arguments ...string) *server {
	t.Helper()
	program, module := os.Getenv("DSYNC_TEST_SERVER"), os.Getenv("DSYNC_TEST_MODULE")
	if program == "" || module == "" {
		t.Fatal("DSYNC_TEST_SERVER and DSYNC_TEST_MODULE are the paths of a server and of libdsync.so")
	}
	for attempt := 0; attempt < 5; attempt++ {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(listener.Addr().String())
		listener.Close()
		dir := t.TempDir()
		words := []string{"--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", dir, "--logfile", "log"}
		if len(arguments) == 0 || arguments[0] != "without module" {
			words = append(words, "--loadmodule", module)
		} else {
			arguments = arguments[1:]
		}
		if len(arguments) > 0 && !strings.HasPrefix(arguments[0], "--") {
			words = append([]string{arguments[0]}, words...) // Its configuration file.
			arguments = arguments[1:]
		}
		command := exec.Command(program, append(words, arguments...)...)
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		s := &server{t: t, address: "127.0.0.1:" + port, process: command.Process}
		s.admin = redis.NewClient(&redis.Options{Addr: s.address, Protocol: 2})
		ended := make(chan struct{})
		go func() { command.Wait(); close(ended) }()
		t.Cleanup(func() { s.admin.Close(); command.Process.Kill(); <-ended })
		for begun := time.Now(); time.Since(begun) < soon; time.Sleep(20 * time.Millisecond) {
			if s.admin.Ping(context.Background()).Err() == nil {
				return s
			}
			select {
			case <-ended: // Another program has taken the port.
				begun = begun.Add(-soon)
			default:
			}
		}
		log, _ := os.ReadFile(filepath.Join(dir, "log"))
		t.Logf("the server does not start:\n%s", log)
	}
	t.Fatal("no server starts")
	return nil
}

// ask sends a command, and returns its reply as text.
func (s *server) ask(words ...any) string {
	s.t.Helper()
	reply, err := s.admin.Do(context.Background(), words...).Result()
	if err != nil && err != redis.Nil {
		s.t.Fatal(words, err)
	}
	return fmt.Sprint(reply)
}

// waiters returns how many wait for a key of a family.
func (s *server) waiters(family, key string) string {
	words := strings.Fields(strings.Trim(s.ask(family+".INFO", key), "[]"))
	for i, word := range words {
		if word == "waiters" {
			return words[i+1]
		}
	}
	return "0"
}

// libraries make a client of a server, each in its way. It is closed with the test.
var libraries = map[string]func(t *testing.T, address string) *dsync.Client{
	"go-redis": func(t *testing.T, address string) *dsync.Client {
		theirs := redis.NewClient(&redis.Options{Addr: address})
		return closing(t, goredis.New(theirs), theirs)
	},
	"redigo": func(t *testing.T, address string) *dsync.Client {
		pool := &redigo.Pool{Dial: func() (redigo.Conn, error) { return redigo.Dial("tcp", address) }}
		return closing(t, dsyncredigo.New(pool, address), pool)
	},
}

func closing(t *testing.T, client *dsync.Client, theirs interface{ Close() error }) *dsync.Client {
	t.Cleanup(func() { client.Close(); theirs.Close() })
	return client
}

// withEach plays a story with each library.
func withEach(t *testing.T, play func(t *testing.T, s *server, client *dsync.Client)) {
	for name := range libraries {
		connect := libraries[name]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t)
			play(t, s, connect(t, s.address))
		})
	}
}

// start starts a server, and makes a client of it with go-redis.
func start(t *testing.T, arguments ...string) (*server, *dsync.Client) {
	t.Parallel()
	s := startServer(t, arguments...)
	return s, libraries["go-redis"](t, s.address)
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for begun := time.Now(); time.Since(begun) < soon; time.Sleep(10 * time.Millisecond) {
		if holds() {
			return
		}
	}
	t.Fatalf("not so within %v: %s", soon, what)
}

func must[T any](t *testing.T) func(result T, err error) T {
	return func(result T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
}

func none(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var background = context.Background()
