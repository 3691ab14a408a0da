#!/bin/sh
# test-matrix.sh: the engine's tests once, then the module's tests on every server that people run, one
# after the other, and the refusal of a server that is too old. The last lines are a table of all of them.
#
# A server comes from where the first of these has one of its version: ALSO="/path/to/redis-server ...",
# what `make test` runs on (server.sh), Debian's sources (build-server.sh). What the first two have of
# other versions is tested too. EXCEPT="redis-8.0 engine ..." leaves out.
#
# Fails if any tests fail, and goes on to the next server before it does. A server that cannot be had fails
# nothing, in CI neither: which ones Debian has changes without us, and those that must be tested `make
# test` demands. But the table says that it was not tested, and why.
set -eu
cd "$(dirname "$0")/.."

# With a +, a later one does once Debian has no such source any more.
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

# "Redis 7.0.15", from "Redis server v=7.0.15 sha=...".
version() {
    "$1" --version | sed 's/ server v=/ /' | cut -d ' ' -f 1,2
}

# redis-7.0, of that.
name_of() {
    version "$1" | tr '[:upper:] ' '[:lower:]-' | sed 's/\.[^.]*$//'
}

# row NAME RESULT [REMARK]
row() {
    printf '    %-11s %-11s %s\n' "$1" "$2" "${3:-}" >>"$table"
}

is_left_out() {
    case " ${EXCEPT:-} " in *" $1 "*) return 0 ;; esac
    return 1
}

# obtain NAME[+]: prints the path of such a server.
obtain() {
    for at_hand in $servers_at_hand; do
        if [ "$(name_of "$at_hand")" = "${1%+}" ]; then
            echo "$at_hand"
            return
        fi
    done
    sh scripts/build-server.sh "${1%%-*}" "${1#*-}"
}

# judge NAME REMARK COMMAND ...: a row for what the command does.
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

# The server must end by itself, having said in its log what it lacks. It gets a socket that nobody uses,
# for without any it ends before it loads modules.
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
    judge engine '' cargo test --workspace --lib --test model --test readme --test arrows
fi
for wanted in $matrix $too_old; do
    name=${wanted%+}
    if is_left_out "$name"; then
        row "$name" 'left out'
        continue
    fi
    echo
    echo "dsync: $name"
    # What is said while it is obtained is shown, and kept: the last line is the reason where it fails.
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
