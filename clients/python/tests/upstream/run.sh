#!/bin/sh
# run.sh HOME: runs redis-py's own tests of its Lock over dsync; see dsync_as_lock.py. HOME is test.sh's folder.
#
# The tests come from the source distribution of the version that is installed, and are never committed.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
home=$1
version=$("$home/newest/bin/python" -c 'import redis; print(redis.__version__)')
source=$home/redis-$version
if [ ! -d "$source" ]; then
    "$home/newest/bin/pip" download --quiet --no-deps --no-build-isolation --no-binary :all: --dest "$home" \
        "redis==$version"
    tar -xzf "$source.tar.gz" -C "$home"
fi

# Their settings for pytest name plugins that are not needed here.
rm -f "$source/pyproject.toml"

# The server tries one port after the other until it finds a free one.
port=23000
while :; do
    rm -f "$home/upstream.log"
    "$DSYNC_TEST_SERVER" --port "$port" --bind 127.0.0.1 --dir "$home" --save '' --logfile "$home/upstream.log" \
        --loadmodule "$DSYNC_TEST_MODULE" &
    pid=$!
    trap 'kill "$pid" 2>/dev/null || true; wait "$pid" 2>/dev/null || true; rm -f "$home/upstream.log"' EXIT
    tries=0
    until grep -q 'Ready to accept connections' "$home/upstream.log" 2>/dev/null || ! kill -0 "$pid" 2>/dev/null; do
        tries=$((tries + 1))
        [ "$tries" -lt 100 ] || break
        sleep 0.1
    done
    ! kill -0 "$pid" 2>/dev/null || break
    port=$((port + 1))
    [ "$port" -lt 23050 ] || {
        echo "dsync: no free port from 23000 to 23049." >&2
        exit 1
    }
done

cd "$source"
PYTHONPATH="$here/../../src:$here" "$home/newest/bin/python" -m pytest -q --tb=short -p dsync_as_lock -p no:cacheprovider \
    -W ignore::pytest.PytestUnknownMarkWarning -o asyncio_mode=auto --redis-url "redis://127.0.0.1:$port/0" tests/test_lock.py tests/test_asyncio/test_lock.py
