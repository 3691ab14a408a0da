#!/bin/sh
# test.sh: tests the Go package against $DSYNC_TEST_SERVER with the module $DSYNC_TEST_MODULE: its style, then its behaviour
# with each library, with the race detector. Arguments are passed to `go test` (-run …).
#
# scripts/go.sh unpacks what it needs under target/go of the repository.
set -eu
cd "$(dirname "$0")"
repository=$(cd ../.. && pwd)
: "${DSYNC_TEST_SERVER:?is the path of redis-server or valkey-server}"
: "${DSYNC_TEST_MODULE:?is the path of libdsync.so}"

go=$(sh "$repository/scripts/go.sh")
PATH=$(dirname "$go"):$repository/target/go/root/usr/bin:$PATH
export PATH GOWORK="$repository/target/go/go.work" GOFLAGS='' GOPROXY=off GOTOOLCHAIN=local

if [ $# -eq 0 ]; then
    unformatted=$(gofmt -l . ../conformance/drivers/go ../../benches/clients/go)
    [ -z "$unformatted" ] || {
        echo "dsync: gofmt would change $unformatted" >&2
        exit 1
    }
    go vet ./... dsync-conformance-driver dsync-bench
    if command -v go-staticcheck >/dev/null; then
        go-staticcheck ./... dsync-conformance-driver dsync-bench
    fi
fi
go test -race "$@" ./...
