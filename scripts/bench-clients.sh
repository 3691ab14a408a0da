#!/bin/sh
# bench-clients.sh: measures what the client packages cost beside their libraries' own commands, in CPU time of the process
# that uses them: a cycle of ACQUIRE and RELEASE over SET NX PX and EVALSHA, and a renewal over one PEXPIRE.
#
# SERVER names the server, otherwise it is the machine's Redis or Debian's. MODULE names a module, otherwise this builds
# one. ONLY names languages: python, node, rust, go. What they need is installed and built under target; a language for
# which that is impossible is left out, and this says so. The table marks what misses its target, and this succeeds all
# the same. The lines of the programs are kept in target/bench/clients.jsonl.
set -eu
cd "$(dirname "$0")/.."
root=$PWD

# prepare LANGUAGE: installs what its program needs, as for the conformance suite, and sets $home.
prepare() {
    cd "$root/clients/conformance"
    set -- -d "$1"
    # shellcheck source=clients/conformance/prepare.sh
    . ./prepare.sh >&2
    cd "$root/benches/clients"
}

# measure LANGUAGE: prints the lines of its program, one for each library.
measure() {
    case $1 in
    python)
        prepare python
        "$home/python/bin/python" bench.py
        ;;
    node)
        prepare node
        for library in ioredis redis; do
            NODE_PATH=$home/node/node_modules node bench.js "$library"
        done
        ;;
    rust)
        CARGO_TARGET_DIR=$root/target/clients-rust cargo run --quiet --release --locked \
            --manifest-path clients/rust/Cargo.toml --example bench
        ;;
    go)
        go=$(sh scripts/go.sh)
        GOWORK=$root/target/go/go.work GOFLAGS='' GOPROXY=off GOTOOLCHAIN=local \
            "$go" build -o "$root/target/go/bench" dsync-bench
        "$root/target/go/bench"
        ;;
    *)
        echo "dsync: ONLY is some of python, node, rust and go, not $1." >&2
        return 1
        ;;
    esac
}

if [ "${1:-}" = measure ]; then
    measure "$2"
    exit
fi

sh scripts/need.sh build peers
server=${SERVER:-$(sh scripts/server.sh redis)}
if [ -z "${MODULE:-}" ]; then
    CARGO_TARGET_DIR=$root/target cargo build --release
    MODULE=$root/target/release/libdsync.so
fi

# shellcheck source=scripts/ports.sh
. scripts/ports.sh
DSYNC_BENCH_PORT=$(next_free_port 17000)
export DSYNC_BENCH_PORT
data=$(mktemp -d)
"$server" --port "$DSYNC_BENCH_PORT" --bind 127.0.0.1 --save '' --dir "$data" --logfile log --loadmodule "$MODULE" &
pid=$!
trap 'kill "$pid" 2>/dev/null; rm -rf "$data"' EXIT
trap 'exit 1' INT TERM
until grep -qs 'Ready to accept' "$data/log"; do
    kill -0 "$pid" 2>/dev/null || {
        cat "$data/log" >&2
        exit 1
    }
    sleep 0.1
done

mkdir -p target/bench
lines=$root/target/bench/clients.jsonl
: >"$lines"
for language in ${ONLY:-python node rust go}; do
    echo "dsync: measuring $language ..." >&2
    # In a process of its own, which the first failure ends.
    sh scripts/bench-clients.sh measure "$language" >>"$lines" ||
        echo "dsync: going on WITHOUT what is missing of $language." >&2
done
python3 benches/clients/table.py "$lines"
