#!/bin/sh
# test-upgrades.sh: upgrades a primary and its replicas under load, replicas first, from each of VERSIONS="0.2.0 ..." to the
# module that is built here, and has the older module read the files of this one, on each of
# SERVERS="/path/to/redis-server ..." (those of `make test` unless set). Each of the five stages takes SECONDS (10).
# tests/server/fuzz/upgrade.rs says the rest.
#
# The versions are built from the repository's history, so a shallow clone has none.
set -eu
cd "$(dirname "$0")/.."

# commit_of VERSION: prints the last commit of a version. There are no tags.
commit_of() {
    case $1 in
    0.2.0) echo 3d72c19 ;;
    0.3.0) echo 34ea1b4 ;;
    0.3.1) echo 27bc65c ;;
    0.4.0) echo 81ecae8 ;;
    0.5.0) echo 27638a6 ;;
    *)
        echo "dsync: there is no version $1 to upgrade from; there are 0.2.0, 0.3.0, 0.3.1, 0.4.0 and 0.5.0" >&2
        return 1
        ;;
    esac
}

sh scripts/need.sh build cli
# shellcheck source=scripts/test-settings.sh
. scripts/test-settings.sh
servers=${SERVERS:-}
if [ -z "$servers" ]; then
    for name in redis valkey; do
        servers="$servers $(sh scripts/server.sh "$name" || true)"
    done
fi
cargo build --release
DSYNC_UPGRADE_SECONDS=${SECONDS:-10}
DSYNC_SEED=${SEED:-$(date +%s)}
export DSYNC_UPGRADE_SECONDS DSYNC_SEED
for version in ${VERSIONS:-0.2.0 0.3.0 0.3.1 0.4.0 0.5.0}; do
    commit=$(commit_of "$version")
    home=$PWD/target/versions/$version
    module=$home/libdsync.so
    if [ ! -f "$module" ]; then
        echo "dsync: building $version, $commit, under target/versions (this takes minutes) ..." >&2
        rm -rf "$home"
        mkdir -p "$home/source"
        git archive "$commit" | tar -x -C "$home/source"
        (cd "$home/source" && cargo build --release --target-dir "$home/target")
        cp "$home/target/release/libdsync.so" "$module"
    fi
    for server in $servers; do
        echo "dsync: from $version, on $("$server" --version | cut -d ' ' -f 1-3), SEED=$DSYNC_SEED"
        DSYNC_OLD_MODULE=$module DSYNC_OLD_VERSION=$version DSYNC_TEST_SERVER=$server \
            cargo test --quiet --test server -- --nocapture --exact \
            fuzz::upgrade::rolling_upgrade_under_load_breaks_no_guarantee \
            fuzz::upgrade::older_module_reads_files_and_grants_higher_fences
    done
done
