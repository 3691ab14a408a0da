package dsync_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"dsync-client"
	"dsync-client/goredis"
	dsyncredigo "dsync-client/redigo"
	redigo "github.com/gomodule/redigo/redis"
	"github.com/redis/go-redis/v9"
)

func TestWrongOptionsAreErrorsBeforeAnythingIsSent(t *testing.T) {
	client := libraries["go-redis"](t, "127.0.0.1:1")
	acquire := func(_ *dsync.Hold, err error) error { return err }
	semaphore := func(options ...dsync.SemaphoreOption) error {
		return acquire(dsync.NewSemaphore(client, "k", options...).Acquire(background))
	}
	lock := func(key string, options ...dsync.LockOption) error {
		return acquire(dsync.NewLock(client, key, options...).Acquire(background))
	}
	once := func(options ...dsync.OnceOption) error {
		_, err := dsync.NewOnce[string](client, "k", options...).Begin(background)
		return err
	}
	expect := func(jobs int) error {
		_, err := dsync.NewGroup(client, "k").Expect(background, jobs)
		return err
	}
	long := strings.Repeat("x", 129)
	for name, err := range map[string]error{
		"the key":      lock(""),
		"Lease":        lock("k", dsync.Lease(0)),
		"Wait":         lock("k", dsync.Wait(-1)),
		"RetryFor":     lock("k", dsync.RetryFor(-1)),
		"Owner":        lock("k", dsync.Owner(long)),
		"Margin":       lock("k", dsync.Lease(time.Second), dsync.Margin(time.Second)),
		"MaxHold":      lock("k", dsync.MaxHold(0)),
		"MinHold":      lock("k", dsync.MinHold(0)),
		"Replicas":     lock("k", dsync.Replicas(0)),
		"AllReplicas":  lock("k", dsync.Replicas(1), dsync.AllReplicas()),
		"Within":       lock("k", dsync.Within(time.Second)),
		"Limit":        semaphore(dsync.Limit(0)),
		"Permits":      semaphore(dsync.Permits(2), dsync.Index()),
		"Lane":         semaphore(dsync.Lane(long)),
		"LaneLimit":    semaphore(dsync.LaneLimit(1)),
		"MaxAttempts":  once(dsync.MaxAttempts(0)),
		"RetryDelay":   once(dsync.RetryDelay(-1)),
		"Keep":         once(dsync.Keep(0)),
		"Forever":      once(dsync.Keep(time.Hour), dsync.Forever()),
		"UntilDone":    once(dsync.UntilDone()),
		"Lease of all": semaphore(dsync.Lease(0)),

		"Lease is 1ms to 30 days, not 30ns: write 30*time.Second": lock("k", dsync.Lease(30)),

		"Lease is 1ms to 30 days, not 744h0m0s": lock("k", dsync.Lease(31*24*time.Hour)),
		"MinHold is 1ms to 30 days":             lock("k", dsync.MinHold(31*24*time.Hour)),
		"Keep is 1ms to 3650 days":              once(dsync.Keep(3651 * 24 * time.Hour)),
		"RetryDelay is 0s to 30 days":           once(dsync.RetryDelay(31 * 24 * time.Hour)),
		"jobs are 1 to 1000000, not 0":          expect(0),
	} {
		if err == nil || !strings.Contains(err.Error(), strings.Split(name, " of ")[0]) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestUserPasswordAndDatabaseAreThoseOfTheClient(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	acl := strings.Fields("ACL SETUSER worker on >secret resetchannels ~* -@all +dlock.acquire +dlock.release +select +dlock.info")
	s.ask(words(acl)...)
	for name, client := range map[string]*dsync.Client{
		"go-redis": goredis.New(redis.NewClient(&redis.Options{Addr: s.address, Username: "worker", Password: "secret", DB: 3})),
		"redigo": dsyncredigo.New(&redigo.Pool{DialContext: func(ctx context.Context) (redigo.Conn, error) {
			return redigo.DialContext(ctx, "tcp", s.address,
				redigo.DialUsername("worker"), redigo.DialPassword("secret"), redigo.DialDatabase(3))
		}}, s.address),
	} {
		defer client.Close()
		hold := must[*dsync.Hold](t)(dsync.NewLock(client, name).Acquire(background))
		if keys := s.ask("INFO", "keyspace"); !strings.Contains(keys, "db3:keys=1") {
			t.Error(name, keys)
		}
		none(t, hold.Release(background))
		// What the user may not do is final.
		_, err := dsync.NewSemaphore(client, "s", dsync.Limit(1)).Acquire(background)
		if err == nil || !strings.Contains(err.Error(), "NOPERM") || !strings.Contains(err.Error(), s.address) {
			t.Error(name, err)
		}
	}
	wrong := goredis.New(redis.NewClient(&redis.Options{Addr: s.address, Username: "worker", Password: "wrong"}))
	defer wrong.Close()
	if _, err := dsync.NewLock(wrong, "k").Acquire(background); err == nil || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Error(err)
	}
}

// withoutDeadlines is a connection that has none, as those through SSH.
type withoutDeadlines struct{ net.Conn }

func (withoutDeadlines) SetDeadline(time.Time) error      { return errors.ErrUnsupported }
func (withoutDeadlines) SetReadDeadline(time.Time) error  { return errors.ErrUnsupported }
func (withoutDeadlines) SetWriteDeadline(time.Time) error { return errors.ErrUnsupported }

func TestConnectionsNeedNoDeadlines(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	dial := func(_ context.Context, network, address string) (net.Conn, error) {
		conn, err := net.Dial(network, address)
		return withoutDeadlines{conn}, err
	}
	theirs := redis.NewClient(&redis.Options{Addr: s.address, Dialer: dial, ReadTimeout: -2, WriteTimeout: -2})
	client := closing(t, goredis.New(theirs), theirs)
	none(t, dsync.NewLock(client, "k").Do(background, func(context.Context) error { return nil }))
}

// slowToClose is a connection whose end takes as long as the test, as one through SSH to a host that is gone.
type slowToClose struct {
	net.Conn
	ended <-chan struct{}
}

func (c slowToClose) Close() error {
	<-c.ended
	return c.Conn.Close()
}

func TestNobodyWaitsForTheEndOfAConnection(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.ask("DLOCK.ACQUIRE", "k", "TOKEN", "mine", "PX", 60000)
	ended := make(chan struct{})
	dial := func(_ context.Context, network, address string) (net.Conn, error) {
		conn, err := net.Dial(network, address)
		return slowToClose{conn, ended}, err
	}
	theirs := redis.NewClient(&redis.Options{Addr: s.address, Dialer: dial})
	client := closing(t, goredis.New(theirs), theirs)
	defer close(ended)
	tried := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(background, 100*time.Millisecond)
		defer cancel()
		_, _ = dsync.NewLock(client, "k").Acquire(ctx)
		hold, err := dsync.NewLock(client, "free", dsync.Lease(time.Second)).TryAcquire(background)
		if err == nil {
			err = hold.Renew(background, 0)
		}
		tried <- err
	}()
	select {
	case err := <-tried:
		none(t, err)
	case <-time.After(soon):
		t.Error("a try waits for the end of another connection")
	}
}

func TestTryIsShortWhateverTheProviderOfCredentialsDoes(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	hanging := make(chan struct{})
	provider := func() (user, password string) { <-hanging; return "", "" }
	theirs := redis.NewClient(&redis.Options{Addr: s.address, CredentialsProvider: provider})
	client := closing(t, goredis.New(theirs), theirs)
	defer close(hanging)
	tried := make(chan error, 1)
	go func() { _, err := dsync.NewLock(client, "k").TryAcquire(background); tried <- err }()
	select {
	case err := <-tried:
		if !errors.Is(err, dsync.ErrNotAcquired) {
			t.Error(err)
		}
	case <-time.After(soon):
		t.Error("it waits for the provider")
	}
}

// The race detector sees whether the options are read while the client changes them: at its first connection.
func TestClientOfTheProgramIsUsedMeanwhile(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	for i := 0; i < 10; i++ {
		theirs := redis.NewClient(&redis.Options{Addr: s.address})
		client := closing(t, goredis.New(theirs), theirs)
		pinged := make(chan error)
		go func() { pinged <- theirs.Ping(background).Err() }()
		must[bool](t)(dsync.NewLock(client, "k").Locked(background))
		none(t, <-pinged)
	}
}

func words(texts []string) []any {
	var words []any
	for _, text := range texts {
		words = append(words, text)
	}
	return words
}

func TestTokenIsInNoError(t *testing.T) {
	t.Parallel()
	s := startServer(t, "without module")
	for name, connect := range libraries {
		for _, key := range []string{"k", strings.Repeat("k", 60)} {
			_, err := dsync.NewLock(connect(t, s.address), key).Acquire(background)
			want := strconv.Quote(key) + ": " + s.address + ": ERR this server has not loaded the dsync module, or an old version of it: " +
				"it does not know DLOCK.ACQUIRE"
			if err == nil || err.Error() != want {
				t.Error(name, err)
			}
		}
	}
}

func TestClientsOfRingsAndClosedClientsFail(t *testing.T) {
	theirs := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	_, err := dsync.NewLock(goredis.New(theirs), "k").Acquire(background)
	theirs.Close()
	if err == nil || !strings.Contains(err.Error(), "Ring") {
		t.Error(err)
	}
	unfound := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	_, err = dsync.NewLock(goredis.New(unfound), "k", dsync.RetryFor(0)).Acquire(background)
	unfound.Close()
	if err == nil || !strings.Contains(err.Error(), `"k": no server is found: `) {
		t.Error(err)
	}
	_, client := start(t)
	client.Close()
	if _, err := dsync.NewLock(client, "k").Acquire(background); !errors.Is(err, dsync.ErrClosed) {
		t.Error(err)
	}
}

func TestNothingIsLeftRunning(t *testing.T) {
	s := startServer(t)
	for name, connect := range libraries {
		client := connect(t, s.address)
		play := func() {
			hold := must[*dsync.Hold](t)(dsync.NewLock(client, "k", dsync.Lease(600*time.Millisecond)).Acquire(background))
			time.Sleep(250 * time.Millisecond)
			none(t, hold.Release(background))
			ctx, cancel := context.WithTimeout(background, 20*time.Millisecond)
			defer cancel()
			_, _ = dsync.NewGroup(client, "g").Wait(ctx)
		}
		play()
		before := runtime.NumGoroutine()
		for i := 0; i < 10; i++ {
			play()
		}
		client.Close()
		eventually(t, name+" has as many goroutines as before", func() bool { return runtime.NumGoroutine() <= before })
	}
}

// selfSigned returns a certificate for an address that is valid for so long, and the pool that trusts it.
func selfSigned(t *testing.T, valid time.Duration, address string) (tls.Certificate, *x509.CertPool) {
	key := must[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotAfter:     time.Now().Add(valid),
		IPAddresses:  []net.IP{net.ParseIP(address)},
		IsCA:         true, BasicConstraintsValid: true,
	}
	der := must[[]byte](t)(x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key))
	pool := x509.NewCertPool()
	pool.AddCert(must[*x509.Certificate](t)(x509.ParseCertificate(der)))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}
