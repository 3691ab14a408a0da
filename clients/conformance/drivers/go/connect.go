package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"dsync-client/goredis"
	dsyncredigo "dsync-client/redigo"
	redigo "github.com/gomodule/redigo/redis"
	"github.com/redis/go-redis/v9"
)

func (d *driver) connect(order order) (answer, error) {
	var addresses []string
	for _, port := range order.Ports {
		addresses = append(addresses, "127.0.0.1:"+strconv.Itoa(port))
	}
	overTLS, err := trusting(order.CA)
	if err != nil {
		return nil, err
	}
	if d.library == "redigo" {
		if order.Mode == "cluster" {
			return answer{"is": "cannot", "why": "redigo knows no clusters"}, nil
		}
		name := addresses[0]
		if order.Mode == "sentinel" {
			name = "the primary of locks"
		}
		dial := func(ctx context.Context) (redigo.Conn, error) {
			address := addresses[0]
			if order.Mode == "sentinel" {
				var err error
				if address, err = primaryOf(ctx, addresses, login(order.SentinelUser, order.SentinelPassword, overTLS)); err != nil {
					return nil, err
				}
			}
			return redigo.DialContext(ctx, "tcp", address, login(order.User, order.Password, overTLS)...)
		}
		d.client = dsyncredigo.New(&redigo.Pool{DialContext: dial}, name)
		return answer{"is": "connected"}, nil
	}
	switch order.Mode {
	case "sentinel":
		d.client = goredis.New(redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: "locks", SentinelAddrs: addresses,
			SentinelUsername: order.SentinelUser, SentinelPassword: order.SentinelPassword,
			Username: order.User, Password: order.Password, TLSConfig: overTLS,
		}))
	case "cluster":
		d.client = goredis.New(redis.NewClusterClient(&redis.ClusterOptions{Addrs: addresses}))
	default:
		options := &redis.Options{Addr: addresses[0], Username: order.User, Password: order.Password, TLSConfig: overTLS}
		d.client = goredis.New(redis.NewClient(options))
	}
	return answer{"is": "connected"}, nil
}

// trusting returns what trusts the authority in a file, and nothing for none.
func trusting(ca string) (*tls.Config, error) {
	if ca == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(ca)
	if err != nil {
		return nil, err
	}
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(pem)
	return &tls.Config{RootCAs: authorities}, nil
}

// login returns how redigo logs in.
func login(user, password string, overTLS *tls.Config) []redigo.DialOption {
	who := []redigo.DialOption{redigo.DialUsername(user), redigo.DialPassword(password)}
	return append(who, redigo.DialUseTLS(overTLS != nil), redigo.DialTLSConfig(overTLS))
}

// primaryOf asks the Sentinels for the address of the primary, until one tells it.
func primaryOf(ctx context.Context, sentinels []string, login []redigo.DialOption) (string, error) {
	var refused, failed error
	for _, sentinel := range sentinels {
		address, err := namedBy(ctx, sentinel, login)
		if err == nil {
			return address, nil
		}
		err = fmt.Errorf("the Sentinel at %s: %w", sentinel, err)
		var reply redigo.Error
		var certificate *tls.CertificateVerificationError
		if errors.As(err, &reply) || errors.As(err, &certificate) {
			refused = err
		} else {
			failed = err
		}
	}
	switch {
	case refused == nil:
		return "", failed
	case failed == nil:
		return "", refused
	}
	// It passes, because the others may come back.
	return "", fmt.Errorf("%w, and %v", failed, refused)
}

// namedBy asks a Sentinel for the address of the primary.
func namedBy(ctx context.Context, sentinel string, login []redigo.DialOption) (string, error) {
	conn, err := redigo.DialContext(ctx, "tcp", sentinel, append(login, redigo.DialConnectTimeout(time.Second))...)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	address, err := redigo.Strings(redigo.DoContext(conn, ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "locks"))
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(address[0], address[1]), nil
}
