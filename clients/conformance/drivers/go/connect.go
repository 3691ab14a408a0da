package main

import (
	"context"
	"fmt"
	"strconv"

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
	if d.library == "redigo" {
		if order.Mode == "cluster" {
			return answer{"is": "cannot", "why": "redigo knows no clusters"}, nil
		}
		dial := func(ctx context.Context) (redigo.Conn, error) {
			address := addresses[0]
			if order.Mode == "sentinel" {
				var err error
				if address, err = primaryOf(ctx, addresses[0]); err != nil {
					return nil, err
				}
			}
			return redigo.DialContext(ctx, "tcp", address, redigo.DialUsername(order.User), redigo.DialPassword(order.Password))
		}
		d.client = dsyncredigo.New(&redigo.Pool{DialContext: dial}, addresses[0])
		return answer{"is": "connected"}, nil
	}
	switch order.Mode {
	case "sentinel":
		d.client = goredis.New(redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "locks", SentinelAddrs: addresses}))
	case "cluster":
		d.client = goredis.New(redis.NewClusterClient(&redis.ClusterOptions{Addrs: addresses}))
	default:
		options := &redis.Options{Addr: addresses[0], Username: order.User, Password: order.Password}
		d.client = goredis.New(redis.NewClient(options))
	}
	return answer{"is": "connected"}, nil
}

// primaryOf asks a sentinel for the address of the primary.
func primaryOf(ctx context.Context, sentinel string) (string, error) {
	conn, err := redigo.DialContext(ctx, "tcp", sentinel)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	address, err := redigo.Strings(redigo.DoContext(conn, ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "locks"))
	if err != nil || len(address) != 2 {
		return "", fmt.Errorf("the sentinel names no primary: %w", err)
	}
	return address[0] + ":" + address[1], nil
}
