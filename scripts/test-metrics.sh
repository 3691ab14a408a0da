#!/bin/sh
# test-metrics.sh: tests contrib/prometheus and contrib/grafana with Debian's Prometheus and redis_exporter.
#
# Unpacks both packages under target/metrics: nothing is installed, and no service starts. DSYNC_TEST_SERVER is the
# server's program, DSYNC_TEST_MODULE the module; both have the defaults of a developer's machine. What is tested is in
# contrib/test_metrics.py.
set -eu
cd "$(dirname "$0")/.."

command -v python3 >/dev/null || sh scripts/need.sh peers
home=$PWD/target/metrics
export DSYNC_TEST_SERVER="${DSYNC_TEST_SERVER:-$(sh scripts/server.sh redis)}"
export DSYNC_TEST_MODULE="${DSYNC_TEST_MODULE:-$PWD/target/release/libdsync.so}"

if [ ! -x "$home/root/usr/bin/promtool" ]; then
    echo "dsync: unpacking Debian's prometheus and prometheus-redis-exporter under target/metrics ..." >&2
    # Unpack in a directory aside, so that an interrupted run leaves nothing half-done.
    work=$home.work
    rm -rf "$work" "$home"
    mkdir -p "$work/apt"
    apt_home=$work/apt
    # shellcheck source=scripts/apt.sh
    . scripts/apt.sh
    update machine
    unpack machine prometheus prometheus-redis-exporter || {
        echo "dsync: apt could not download them:" >&2
        update_errors >&2
        exit 1
    }
    rm -rf "$work/debs" "$work/apt"
    mv "$work" "$home"
fi

PATH=$home/root/usr/bin:$PATH
promtool check rules contrib/prometheus/alerts.yml
promtool test rules contrib/prometheus/alerts_test.yml
exec python3 contrib/test_metrics.py
