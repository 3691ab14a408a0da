#!/bin/sh
# test-memory.sh: runs the server stories on servers that AddressSanitizer watches, SERVERS="redis-7.0 ..." of them, or the
# STORIES whose names contain this. Fails if a story fails, or a server of one has reported anything.
#
# The servers are built from Debian's sources (build-server.sh), and the module with them, so that every read and write of
# either is watched: what is used after it was freed, freed twice, or read beyond its end. Leaks are not looked for, because
# stories end their servers with SIGKILL.
set -eu
cd "$(dirname "$0")/.."

sh scripts/need.sh build make hosts
# shellcheck source=scripts/test-settings.sh
. scripts/test-settings.sh
apt_home=$PWD/target/servers/sources
# shellcheck source=scripts/apt.sh
. scripts/apt.sh
# shellcheck source=scripts/source.sh
. scripts/source.sh

fail() {
    echo "dsync: no ${wanted%+} here: $1" >&2
    exit 1
}

# RUSTC_BOOTSTRAP has a released compiler do what is not settled yet.
host=$(rustc -vV | sed -n 's/^host: //p')
RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address cargo build --release --target "$host" --target-dir target/memory/module
export DSYNC_TEST_MODULE="$PWD/target/memory/module/$host/release/libdsync.so"
# The first compares what dsync says that it takes with what the server's own allocator gives; the second needs a server that
# is fast enough for all kinds of waits to end; the third preloads the module, before what it needs of AddressSanitizer.
not_here='--skip memory_usage_of_every_kind --skip gauges_return_to_zero --skip refused_load_of_a_library_that_stays'
failed=''
for wanted in ${SERVERS:-redis-7.0 redis-8.0+ valkey-9.1+}; do
    find_source "${wanted%%-*}" "${wanted#*-}"
    home=$PWD/target/memory/$product-$full
    server=$home/$product-server
    if [ ! -x "$server" ]; then
        echo "dsync: building $product $full with AddressSanitizer under target/memory (this takes minutes) ..." >&2
        rm -rf "$home"
        mkdir -p "$home"
        fetch_source "$home"
        make_server "$home" SANITIZER=address "$product-server" "$product-cli"
        cp "$home/source/src/$product-cli" "$home/"
        # The tests preload libraries that come before AddressSanitizer's, and send a payload that says it has a terabyte,
        # which the server tries to allocate: that is a warning.
        cat >"$server" <<END
#!/bin/sh
export ASAN_OPTIONS="log_path=$home/reports/report:detect_leaks=0:verify_asan_link_order=0:allocator_may_return_null=1:exitcode=99"
exec '$home/source/src/$product-server' "\$@"
END
        chmod +x "$server"
    fi
    rm -rf "$home/reports"
    mkdir "$home/reports"
    echo "dsync: testing on $("$server" --version | cut -d ' ' -f 1-3) with AddressSanitizer"
    # shellcheck disable=SC2086 # a word each
    DSYNC_TEST_SERVER=$server cargo test --test server -- $not_here ${STORIES:-} || failed="$failed $product-$full"
    if grep -qs 'ERROR: AddressSanitizer' "$home"/reports/*; then
        cat "$home"/reports/* >&2
        failed="$failed $product-$full (reports)"
    fi
done
if [ -n "$failed" ]; then
    echo "dsync: failed on$failed" >&2
    exit 1
fi
