#!/bin/sh
# test.sh: tests the Python package against $DSYNC_TEST_SERVER with the module $DSYNC_TEST_MODULE.
#
# Installs what it needs in pinned versions under target/clients/python of the repository: the newest client libraries, and
# the oldest that are supported, with Python 3.9 where $PYTHON39 or the PATH has one. Arguments are passed to pytest, and
# then only the package's own tests run, with the newest libraries.
set -eu
cd "$(dirname "$0")"
here=$PWD
home=$(cd ../.. && pwd)/target/clients/python
: "${DSYNC_TEST_SERVER:?is the path of redis-server or valkey-server}"
: "${DSYNC_TEST_MODULE:?is the path of libdsync.so}"
export PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1

# install NAME PYTHON REQUIREMENTS: makes the virtual environment, unless it is there with these requirements.
install() {
    if ! cmp -s "$3" "$home/$1/requirements.txt"; then
        rm -rf "${home:?}/$1"
        mkdir -p "$home"
        "$2" -m venv "$home/$1"
        "$home/$1/bin/pip" install --quiet --requirement "$3"
        cp "$3" "$home/$1/requirements.txt"
    fi
}

pytest() {
    venv=$1
    shift
    PYTHONPATH="$here/src" "$home/$venv/bin/python" -m pytest -q -p no:cacheprovider "$@"
}

install newest "${PYTHON:-python3}" tests/requirements.txt
if [ $# -gt 0 ]; then
    pytest newest "$@"
    exit
fi

"$home/newest/bin/ruff" check --quiet --no-cache .
"$home/newest/bin/ruff" format --quiet --no-cache --check .
"$home/newest/bin/mypy" --cache-dir "$home/mypy"
# Most tests wait for a lease or a failover most of the time.
pytest newest --numprocesses 6 --dist loadgroup
sh tests/upstream/run.sh "$home"

# The wheel has the types and the licences.
rm -rf "$home/dist"
"$home/newest/bin/python" -m build --no-isolation --outdir "$home/dist" . >"$home/build.log" 2>&1 || {
    cat "$home/build.log" >&2
    exit 1
}
"$home/newest/bin/python" -m zipfile -l "$home"/dist/*.whl >"$home/dist/files"
for file in dsync/py.typed dsync/aio/__init__.py LICENSE-MIT LICENSE-APACHE; do
    grep -q "$file" "$home/dist/files" || {
        echo "dsync: the wheel lacks $file." >&2
        exit 1
    }
done

# The lines of the README install the package, with a client library, and make a wheel.
"${PYTHON:-python3}" -m venv --clear "$home/installed"
sed -n 's/^pip /pip --quiet /p' README.md >"$home/install-lines"
test "$(grep -c . "$home/install-lines")" -eq 2
(cd ../.. && PATH="$home/installed/bin:$PATH" && export PATH && sh -eu "$home/install-lines" && cd / &&
    python -c 'import dsync.aio.redis_lock, redis' && test -f "$home"/../../wheels/dsync_client-*.whl)

oldest=${PYTHON39:-$(command -v python3.9 || true)}
if [ -n "$oldest" ] && "$oldest" -c '' 2>/dev/null; then
    install oldest "$oldest" tests/requirements-oldest.txt
    pytest oldest --numprocesses 6 --dist loadgroup
else
    echo "dsync: no Python 3.9 (\$PYTHON39), so the oldest supported versions are not tested."
fi
