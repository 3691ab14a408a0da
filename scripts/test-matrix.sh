#!/bin/sh
# test-matrix.sh: runs the engine's tests once, then the module's tests on every supported server, one after the other,
# and checks that a server that is too old refuses the module. The last lines are a table with all results.
#
# A server of a version comes from the first of these places that has one: ALSO="/path/to/redis-server ...", the servers
# of `make test` (server.sh), Debian's sources (build-server.sh). Servers of other versions in the first two places are
# tested too. EXCEPT="redis-8.0 engine ..." leaves some out.
#
# If tests fail on one server, it continues with the next, and fails at the end. A server that is not available is no
# failure, not even in CI, because Debian's choice of servers changes, and `make test` demands the important ones. But
# the table says that it was not tested, and why.
set -eu
cd "$(dirname "$0")/.."

# With a +, a later version is accepted once Debian no longer has this one's source.
matrix='redis-7.0 redis-7.2 redis-7.4 redis-8.0+ valkey-8.0 valkey-9.1+'
too_old='redis-6.0'

sh scripts/need.sh build cli hosts
# shellcheck source=scripts/test-settings.sh
. scripts/test-settings.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
table=$work/table
: >"$table"

# Prints "Redis 7.0.15" for a server that says "Redis server v=7.0.15 sha=...".
version() {
    "$1" --version | sed 's/ server v=/ /' | cut -d ' ' -f 1,2
}

# Prints "redis-7.0" for the same server.
name_of() {
    version "$1" | tr '[:upper:] ' '[:lower:]-' | sed 's/\.[^.]*$//'
}

# row NAME RESULT [REMARK]: adds a row to the table.
row() {
    printf '    %-11s %-11s %s\n' "$1" "$2" "${3:-}" >>"$table"
}

is_left_out() {
    case " ${EXCEPT:-} " in *" $1 "*) return 0 ;; esac
    return 1
}

# obtain NAME[+]: prints the path of a server of this version, or fails.
obtain() {
    for at_hand in $servers_at_hand; do
        if [ "$(name_of "$at_hand")" = "${1%+}" ]; then
            echo "$at_hand"
            return
        fi
    done
    sh scripts/build-server.sh "${1%%-*}" "${1#*-}"
}

# judge NAME REMARK COMMAND ...: runs the command and adds a row with its result.
judge() {
    judged=$1
    remark=$2
    shift 2
    if "$@"; then
        row "$judged" passed "$remark"
    else
        row "$judged" FAILED "$remark"
        failed=yes
    fi
}

test_on() {
    DSYNC_TEST_SERVER=$1 cargo test --test server
}

# Checks that the server exits by itself and that its log says which function it lacks. It gets a Unix socket, which
# nothing uses, because without port and socket it exits before it loads modules.
is_refused_by() {
    if timeout 60 "$1" --port 0 --unixsocket "$work/socket" --save '' --dir "$work" \
        --loadmodule "$PWD/target/release/libdsync.so" >"$work/refusal" 2>&1; then
        echo "dsync: it runs with the module" >>"$work/refusal"
    fi
    cat "$work/refusal"
    grep -q 'dsync is not loaded: this server lacks RedisModule_[A-Za-z]*; Redis 7.0 or newer is needed' "$work/refusal"
}

servers_at_hand=${ALSO:-}
for server in $servers_at_hand; do
    "$server" --version >/dev/null
done
for product in redis valkey; do
    servers_at_hand="$servers_at_hand $(sh scripts/server.sh "$product" || true)"
done
for server in $servers_at_hand; do
    name=$(name_of "$server")
    case " $matrix " in
    *" $name "* | *" $name+ "*) ;;
    *) matrix="$matrix $name" ;;
    esac
done

cargo build --release
failed=''
if is_left_out engine; then
    row engine 'left out'
else
    judge engine '' cargo test --workspace --lib --test model --test readme --test arrows --test commit
fi
for wanted in $matrix $too_old; do
    name=${wanted%+}
    if is_left_out "$name"; then
        row "$name" 'left out'
        continue
    fi
    echo
    echo "dsync: $name"
    # Show what `obtain` says, and keep it: if it fails, the last line is the reason.
    obtain "$wanted" 2>&1 >"$work/server" | tee "$work/said" >&2
    server=$(cat "$work/server")
    if [ -z "$server" ]; then
        row "$name" 'NOT TESTED' "$(tail -n 1 "$work/said" | sed 's/^dsync: no [^:]*: //')"
    elif [ "$wanted" = "$too_old" ]; then
        judge "$name" "$(version "$server") refuses the module, and says why" is_refused_by "$server"
    else
        echo "dsync: the module on $(version "$server") ($server)"
        judge "$name" "$(version "$server")" test_on "$server"
    fi
done

echo
echo "dsync: the matrix"
cat "$table"
if grep -q 'NOT TESTED' "$table"; then
    echo 'dsync: to test on more: make test-matrix ALSO="/path/to/redis-server ..."'
fi
[ -z "$failed" ]
