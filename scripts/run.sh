#!/bin/sh
# run.sh: builds the module and starts a server with it in the foreground, on 127.0.0.1 and $PORT.
#
# Fetches first what is missing, see need.sh and server.sh. Before it starts the server, it prints commands to try in two
# other terminals. It refuses a port that is in use, so it never disturbs another server of the user, and names a free one.
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

# shellcheck source=scripts/ports.sh
. scripts/ports.sh
if is_taken "$port"; then
    echo "dsync: port $port is in use, perhaps by another Redis. This one is free:" >&2
    echo "    make run PORT=$(next_free_port "$port")" >&2
    exit 1
fi

sh scripts/need.sh build cli
# Fetch a Redis only if the machine has neither Redis nor Valkey.
server=$(command -v redis-server || command -v valkey-server || sh scripts/server.sh redis)
cli=$(command -v redis-cli || command -v valkey-cli || echo "$PWD/target/servers/redis/redis-cli")

cargo build --release
# Each port has a folder of its own, so that two servers never write to the same files. The server gets a copy of the
# configuration, because CONFIG REWRITE writes to it.
data=target/run/$port
mkdir -p "$data"
cp redis.conf.example "$data/redis.conf"

cli=${cli#/usr/bin/}
cat <<EOF

$("$server" --version | cut -d ' ' -f 1-3) with dsync on 127.0.0.1:$port; Ctrl-C stops it.
Its data is in $data. In a second terminal, take a lock:

    $cli -p $port DLOCK.ACQUIRE demo EX 300 TOKEN first

In a third one, wait for the same lock:

    $cli -p $port DLOCK.ACQUIRE demo EX 30 TOKEN second BLOCK 0

In the second, see who holds and who waits. Then release the lock, and the third has it at once:

    $cli -p $port DLOCK.INFO demo
    $cli -p $port DLOCK.RELEASE demo first

EOF
exec "$server" "$data/redis.conf" --port "$port" --dir "$data" \
    --loadmodule "$PWD/target/release/libdsync.so"
