#!/bin/sh
# mutants.sh: plays mutants of the files whose names have FILE, a regular expression, in them (tests/mutants/run.py says more).
# LONGEST=seconds leaves out tests that take longer, WOVEN=yes what cannot be in one program. KEEP=yes adds to the record, and
# LEFT=yes goes on with what it says is left.
#
# cargo-tool.sh builds cargo-mutants, which names the mutants; the parser of their operands is installed under target/tools.
set -eu
cd "$(dirname "$0")/.."

sh scripts/need.sh build hosts
PATH=$PATH:$(sh scripts/cargo-tool.sh mutants)
python=$PWD/target/tools/python
requirements=tests/mutants/requirements.txt
if ! cmp -s "$requirements" "$python/requirements.txt"; then
    rm -rf "$python"
    "${PYTHON:-python3}" -m venv "$python"
    "$python/bin/pip" install --quiet --disable-pip-version-check --requirement "$requirements"
    cp "$requirements" "$python/requirements.txt"
fi
# It has all that the module asks of any server but internal commands.
DSYNC_TEST_SERVER="${DSYNC_TEST_SERVER:-$(sh scripts/server.sh valkey)}"
export DSYNC_TEST_SERVER
exec "$python/bin/python" tests/mutants/run.py --file "${FILE:-}" --longest "${LONGEST:-inf}" \
    ${WOVEN:+--woven} ${LEFT:+--left} ${KEEP:+--keep}
