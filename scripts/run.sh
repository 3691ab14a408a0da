#!/bin/sh
# run.sh: builds the module and starts a server with it in the foreground, on 127.0.0.1 and $PORT.
#
# Whatever is missing is fetched first, see need.sh and server.sh. Says before the server starts what to
# type in another terminal. Refuses a port that is in use: a server of the user's own is never touched.
set -eu
cd "$(dirname "$0")/.."

port=${PORT:-6379}
case $port in
'' | *[!0-9]* | ??????*) port=0 ;;
esac
if [ "$port" -lt 1 ] || [ "$port" -gt 65535 ]; then
    echo "dsync: PORT must be a number from 1 to 65535, not '${PORT:-}'." >&2
    exit 1
fi

# Whether anybody listens on a port. The kernel's own table, for no tool that shows it is always there.
is_taken() {
    cat /proc/net/tcp /proc/net/tcp6 2>/dev/null |
        awk -v port=":$(printf '%04X' "$1")" '$4 == "0A" && substr($2, length($2) - 4) == port { found = 1 }
            END { exit !found }'
}

if is_taken "$port"; then
    echo "dsync: port $port is in use, by another Redis perhaps. Choose another, for example:" >&2
    echo "    make run PORT=$((port < 65535 ? port + 1 : 6380))" >&2
    exit 1
fi

sh scripts/need.sh build cli
# A machine that has chosen Valkey gets no Redis besides.
server=$(command -v redis-server || command -v valkey-server || sh scripts/server.sh redis)
cli=$(command -v redis-cli || command -v valkey-cli || echo target/servers/redis/redis-cli)

cargo build --release
# A copy, for CONFIG REWRITE to write to.
mkdir -p target/run
cp redis.conf.example target/run/redis.conf

cat <<EOF

$("$server" --version | cut -d ' ' -f 1-3) with dsync on 127.0.0.1:$port; Ctrl-C stops it.
Its data is in target/run. In another terminal:

    ${cli#/usr/bin/} -p $port DLOCK.ACQUIRE jobs:1 PX 30000

EOF
exec "$server" target/run/redis.conf --port "$port" --dir target/run \
    --loadmodule "$PWD/target/release/libdsync.so"
