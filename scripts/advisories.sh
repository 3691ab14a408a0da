#!/bin/sh
# advisories.sh: fails if something that is reported against a dependency concerns this project: of all crates in a
# Cargo.lock, of all packages in a package-lock.json, and of the Python packages of tests and benchmarks. It looks at all of
# them before it fails. Needs the network; builds cargo-deny into target/tools if it is not there.
#
# Reports that do not concern us are named in deny.toml, with the reason.
set -u
cd "$(dirname "$0")/.." || exit 1

sh scripts/licences.sh || exit 1
sh scripts/need.sh peers || exit 1
PATH=$PATH:$(sh scripts/cargo-tool.sh deny)
failed=''

# locks NAME: prints the lock files with this name.
locks() {
    find . \( -name target -o -name node_modules \) -prune -o -name "$1" -print | LC_ALL=C sort
}

# check WHAT COMMAND ...: runs the command, and notes WHAT if it fails.
check() {
    what=$1
    shift
    echo "dsync: advisories for $what"
    "$@" || failed="$failed $what"
}

for lock in $(locks Cargo.lock); do
    check "$lock" cargo deny --manifest-path "${lock%.lock}.toml" --config "$PWD/deny.toml" --workspace check advisories
done
for lock in $(locks package-lock.json); do
    check "$lock" npm audit --package-lock-only --prefix "${lock%/package-lock.json}"
done
tools=target/tools/python
[ -x "$tools/bin/pip-audit" ] || { python3 -m venv "$tools" && "$tools/bin/pip" install -q pip-audit==2.10.1; } || exit 1
# Not requirements-oldest.txt, which is old on purpose.
for file in clients/python/tests/requirements.txt benches/peers/requirements.txt; do
    check "$file" "$tools/bin/pip-audit" --strict --progress-spinner off --requirement "$file"
done

[ -z "$failed" ] || {
    echo "dsync: advisories concern$failed" >&2
    exit 1
}
