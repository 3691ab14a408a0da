#!/bin/sh
# test-run.sh: tests that `make run` serves on the port that it was told, that every line which it prints works when it is
# typed as it stands and tells the story that is printed around it, and that it names a free port if its own is taken.
set -eu
cd "$(dirname "$0")/.."

work=$(mktemp -d)
servers=''
ports=''
end() {
    for pid in $servers; do
        kill "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    for port in $ports; do rm -rf "target/run/$port"; done
    rm -rf "$work"
}
trap end EXIT
trap 'exit 1' HUP INT TERM

fail() {
    echo "test-run: $*" >&2
    exit 1
}

# await WHAT COMMAND ...: waits until the command succeeds.
await() {
    what=$1
    shift
    tries=0
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ "$tries" -lt 600 ] || fail "waited in vain until $what. Printed: $(cat "$work"/*)"
        sleep 0.1
    done
}

# Runs the line that make run has printed and that contains $1.
printed() {
    line=$(grep -- "$1" "$work/said" | head -n 1)
    [ -n "$line" ] || fail "make run prints no line with $1: $(cat "$work/said")"
    sh -c "$line"
}

# start PORT: starts `make run` there, and waits until it serves. As make does it, but the process is the server's.
start() {
    ports="$ports $1"
    rm -rf "target/run/$1"
    PORT=$1 sh scripts/run.sh >"$work/said" 2>&1 &
    servers="$servers $!"
    await "the server on port $1 is ready" grep -q 'Ready to accept connections' "$work/said"
}

# hint PORT: prints the port that make run names when PORT is taken.
hint() {
    if PORT=$1 timeout 60 sh scripts/run.sh >"$work/hint" 2>&1; then
        fail "make run does not fail on port $1, which is taken"
    fi
    sed -n 's/^    make run PORT=//p' "$work/hint"
}

# Now, because it may take longer than `await` waits.
make -s build

# shellcheck source=scripts/ports.sh
. scripts/ports.sh
first=$(next_free_port $((20000 + $$ % 10000)))
start "$first"

printed 'TOKEN first' >"$work/first"
grep -qx first "$work/first" || fail "the first line takes no lock: $(cat "$work/first")"
printed 'TOKEN second' >"$work/second" &
waiter=$!
is_waiting() {
    printed DLOCK.INFO | tr '\n' ' ' | grep -q ' waiters 1 '
}
await 'the second line waits' is_waiting
printed DLOCK.RELEASE >"$work/released"
wait "$waiter"
grep -qx second "$work/second" || fail "the second line does not get the lock: $(cat "$work/second")"

# The named port must be free, so a server starts there; then the hint goes on to another.
second=$(hint "$first")
[ "$second" != "$first" ] || fail "make run names the port that is taken: $first"
start "$second"
third=$(hint "$first")
if [ "$third" = "$first" ] || [ "$third" = "$second" ]; then
    fail "make run names a port that is taken: $third"
fi
echo 'dsync: make run prints lines that work, and names a free port.'
