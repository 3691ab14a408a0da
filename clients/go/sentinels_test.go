package dsync_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"dsync-client"
	"dsync-client/goredis"
	dsyncredigo "dsync-client/redigo"
	redigo "github.com/gomodule/redigo/redis"
	"github.com/redis/go-redis/v9"
)

// startSentinel starts one that knows this primary, and refuses all passwords but this.
func startSentinel(t *testing.T, primary, password string) *server {
	config := filepath.Join(t.TempDir(), "sentinel.conf")
	none(t, os.WriteFile(config, nil, 0o600))
	s := startServer(t, "without module", config, "--sentinel")
	host, port, _ := net.SplitHostPort(primary)
	s.ask("SENTINEL", "MONITOR", "locks", host, port, 1)
	s.ask("ACL", "SETUSER", "default", "resetpass", ">"+password)
	return s
}

func bySentinels(t *testing.T, options redis.FailoverOptions, sentinels ...string) *dsync.Client {
	options.MasterName, options.SentinelAddrs = "locks", sentinels
	theirs := redis.NewFailoverClient(&options)
	return closing(t, goredis.New(theirs), theirs)
}

func TestSentinelThatRefusesIsPassedOver(t *testing.T) {
	s, _ := start(t)
	good, bad := startSentinel(t, s.address, "secret"), startSentinel(t, s.address, "other")
	const nobody = "127.0.0.1:1"
	right := redis.FailoverOptions{SentinelPassword: "secret"}
	hold := must[*dsync.Hold](t)(dsync.NewLock(bySentinels(t, right, bad.address, nobody, good.address), "k").Acquire(background))
	none(t, hold.Release(background))
	// It says more than one that is not reached, which can be back soon.
	begun := time.Now()
	retryFor := dsync.RetryFor(2 * time.Second)
	_, err := dsync.NewLock(bySentinels(t, right, bad.address, nobody), "k", retryFor).Acquire(background)
	if err == nil || !strings.HasPrefix(err.Error(), `"k": the primary of Sentinel: a Sentinel refuses: WRONGPASS`) {
		t.Error(err)
	}
	if took := time.Since(begun); took < 2*time.Second {
		t.Error("it does not wait for the other Sentinel", took)
	}
	// All have refused.
	wrong := redis.FailoverOptions{SentinelPassword: "wrong"}
	for name, options := range map[string]redis.FailoverOptions{"WRONGPASS": wrong, "NOAUTH": {}} {
		begun = time.Now()
		_, err = dsync.NewLock(bySentinels(t, options, bad.address, good.address), "k").Acquire(background)
		if err == nil || !strings.Contains(err.Error(), "a Sentinel refuses: "+name) || time.Since(begun) > soon {
			t.Error(name, err)
		}
	}
	_, err = dsync.NewLock(bySentinels(t, right, nobody), "k", dsync.RetryFor(0)).Acquire(background)
	if err == nil || !strings.Contains(err.Error(), "no Sentinel is reached: ") {
		t.Error(err)
	}
}

func TestErrorNamesTheServerThatSentinelHasNamed(t *testing.T) {
	s, _ := start(t)
	s.ask("ACL", "SETUSER", "nobody", "on", "nopass")
	options := redis.FailoverOptions{SentinelPassword: "secret", Username: "nobody", Password: "any"}
	_, err := dsync.NewLock(bySentinels(t, options, startSentinel(t, s.address, "secret").address), "k").Acquire(background)
	if err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf(`"k": %s: NOPERM`, s.address)) {
		t.Error(err)
	}
}

// encrypted is a listener that decrypts for a server, since TLS is the library's own. Its certificate can be replaced.
type encrypted struct {
	address     string
	certificate atomic.Pointer[tls.Certificate]
	// Greeted counts the connections that were tried.
	greeted atomic.Int32
	mu      sync.Mutex
	conns   []net.Conn
}

func encrypt(t *testing.T, s *server, certificate tls.Certificate) *encrypted {
	e := &encrypted{}
	e.certificate.Store(&certificate)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			e.greeted.Add(1)
			return e.certificate.Load(), nil
		},
	})
	none(t, err)
	t.Cleanup(func() { listener.Close(); e.cut() })
	e.address = listener.Addr().String()
	go func() {
		for {
			accepted, err := listener.Accept()
			if err != nil {
				return
			}
			e.mu.Lock()
			e.conns = append(e.conns, accepted)
			e.mu.Unlock()
			go func() {
				defer accepted.Close()
				if plain, err := net.Dial("tcp", s.address); err == nil {
					go func() { _, _ = io.Copy(plain, accepted); plain.Close() }()
					_, _ = io.Copy(accepted, plain)
				}
			}()
		}
	}()
	return e
}

// cut closes all connections.
func (e *encrypted) cut() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, conn := range e.conns {
		conn.Close()
	}
	e.conns = nil
}

// withTLS make a client of a server, each library in its way.
var withTLS = map[string]func(t *testing.T, address string, config *tls.Config) *dsync.Client{
	"go-redis": func(t *testing.T, address string, config *tls.Config) *dsync.Client {
		theirs := redis.NewClient(&redis.Options{Addr: address, TLSConfig: config})
		return closing(t, goredis.New(theirs), theirs)
	},
	"redigo": func(t *testing.T, address string, config *tls.Config) *dsync.Client {
		pool := &redigo.Pool{DialContext: func(ctx context.Context) (redigo.Conn, error) {
			return redigo.DialContext(ctx, "tcp", address, redigo.DialUseTLS(true), redigo.DialTLSConfig(config))
		}}
		return closing(t, dsyncredigo.New(pool, address), pool)
	},
}

func TestCertificateThatIsNotTrustedIsFinal(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	trusted, pool := selfSigned(t, time.Hour, "127.0.0.1")
	expired, ofExpired := selfSigned(t, -time.Hour, "127.0.0.1")
	other, ofOther := selfSigned(t, time.Hour, "127.0.0.2")
	for name, connect := range withTLS {
		hold := must[*dsync.Hold](t)(dsync.NewLock(connect(t, encrypt(t, s, trusted).address, &tls.Config{RootCAs: pool}), name).Acquire(background))
		none(t, hold.Release(background))
		for why, row := range map[string]struct {
			certificate tls.Certificate
			trusts      *x509.CertPool
		}{
			"unknown authority": {trusted, ofOther}, "expired": {expired, ofExpired}, "not 127.0.0.1": {other, ofOther},
		} {
			begun := time.Now()
			e := encrypt(t, s, row.certificate)
			_, err := dsync.NewLock(connect(t, e.address, &tls.Config{RootCAs: row.trusts}), "k").Acquire(background)
			var untrusted *tls.CertificateVerificationError
			if !errors.As(err, &untrusted) || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), e.address) ||
				time.Since(begun) > soon {
				t.Error(name, why, err)
			}
		}
	}
	// A check of the program's own has errors of package x509.
	refuse := func(tls.ConnectionState) error {
		return x509.HostnameError{Certificate: &x509.Certificate{}, Host: "mine"}
	}
	client := withTLS["go-redis"](t, encrypt(t, s, trusted).address, &tls.Config{RootCAs: pool, VerifyConnection: refuse})
	begun := time.Now()
	_, err := dsync.NewLock(client, "k").Acquire(background)
	if !errors.As(err, &x509.HostnameError{}) || time.Since(begun) > soon {
		t.Error(err)
	}
	// That of a Sentinel is as a refused password.
	sentinel := encrypt(t, startSentinel(t, s.address, "secret"), trusted)
	options := redis.FailoverOptions{TLSConfig: &tls.Config{}}
	_, err = dsync.NewLock(bySentinels(t, options, sentinel.address), "k").Acquire(background)
	if err == nil || !strings.Contains(err.Error(), "a Sentinel refuses: tls: ") {
		t.Error(err)
	}
}

func TestHoldIsEndedOverACertificateThatIsReplaced(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	trusted, pool := selfSigned(t, time.Hour, "127.0.0.1")
	next, _ := selfSigned(t, time.Hour, "127.0.0.1")
	for name, connect := range withTLS {
		e := encrypt(t, s, trusted)
		client := connect(t, e.address, &tls.Config{RootCAs: pool})
		hold := must[*dsync.Hold](t)(dsync.NewLock(client, name).Acquire(background))
		e.certificate.Store(&next)
		e.cut()
		before := e.greeted.Load()
		released := make(chan error, 1)
		go func() { released <- hold.Release(background) }()
		eventually(t, "two refusals", func() bool { return e.greeted.Load() >= before+2 })
		e.certificate.Store(&trusted)
		none(t, <-released)
		if info := s.ask("DLOCK.INFO", name); info != "<nil>" {
			t.Error(name, info)
		}
	}
}
