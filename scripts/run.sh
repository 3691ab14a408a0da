#!/bin/sh
# run.sh: builds the module and starts a server with it in the foreground, on 127.0.0.1 and $PORT.
#
# Fetches first what is missing, see need.sh and server.sh. Before it starts the server, it prints a command to try in
# another terminal. It refuses a port that is in use, so it never disturbs another server of the user.
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

# Whether a program listens on the port. Reads the kernel's own table, because no tool for this is on every machine.
is_taken() {
    cat /proc/net/tcp /proc/net/tcp6 2>/dev/null |
        awk -v port=":$(printf '%04X' "$1")" '$4 == "0A" && substr($2, length($2) - 4) == port { found = 1 }
            END { exit !found }'
}

if is_taken "$port"; then
    echo "dsync: port $port is in use, perhaps by another Redis. Choose another port, for example:" >&2
    echo "    make run PORT=$((port < 65535 ? port + 1 : 6380))" >&2
    exit 1
fi

sh scripts/need.sh build cli
# Fetch a Redis only if the machine has neither Redis nor Valkey.
server=$(command -v redis-server || command -v valkey-server || sh scripts/server.sh redis)
cli=$(command -v redis-cli || command -v valkey-cli || echo target/servers/redis/redis-cli)

cargo build --release
# The server gets a copy, because CONFIG REWRITE writes to it.
mkdir -p target/run
cp redis.conf.example target/run/redis.conf

cat <<EOF

$("$server" --version | cut -d ' ' -f 1-3) with dsync on 127.0.0.1:$port; Ctrl-C stops it.
Its data is in target/run. In another terminal:

    ${cli#/usr/bin/} -p $port DLOCK.ACQUIRE jobs:1 PX 30000

EOF
exec "$server" target/run/redis.conf --port "$port" --dir target/run \
    --loadmodule "$PWD/target/release/libdsync.so"
