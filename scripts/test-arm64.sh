#!/bin/sh
# test-arm64.sh: builds the module for arm64, target/arm64/libdsync.so, and runs the server tests with it on Debian's Redis
# for arm64, under qemu-user. `make test-arm64` calls it; TESTS="cluster:: ..." are the tests, commands:: and waiting::
# without it.
#
# The compiler is that of Debian's unstable release, because Debian has the standard library of Rust for other machines as
# a package of the same version. It runs in a root folder of its own, which debootstrap makes, because it needs a newer C
# library than most machines have. What it builds needs an older one all the same: glibc 2.34.
#
# Needs root, for the chroot; nothing is installed on the machine, and `make clean` removes everything. Not a part of
# .ci/run: it downloads 400 MB, and a processor that is imitated says nothing of speed or of memory order.
set -eu
cd "$(dirname "$0")/.."

fail() {
    echo "test-arm64: $*" >&2
    exit 1
}

home=$PWD/target/arm64
registry=${CARGO_HOME:-$HOME/.cargo}/registry
target=aarch64-unknown-linux-gnu

# make_compiler: a root folder of Debian's unstable release with what builds the module, in $work/compiler.
make_compiler() {
    unpack machine debootstrap || fail "no debootstrap: $(update_errors)"
    write_sources unstable deb sid || fail 'this is not Debian, or apt has no source of its main archive.'
    archive=$(awk '{ print $(NF - 2) }' "$apt_home/unstable/sources.list")
    DEBOOTSTRAP_DIR=$work/root/usr/share/debootstrap sh "$work/root/usr/sbin/debootstrap" --variant=minbase \
        --include=ca-certificates sid "$work/compiler" "$archive" >&2
    cp /etc/apt/apt.conf.d/* "$work/compiler/etc/apt/apt.conf.d/"
    in_compiler "$work/compiler" sh -c 'dpkg --add-architecture arm64 && apt-get -q update && apt-get install -q -y \
        --no-install-recommends rustc cargo libstd-rust-dev:arm64 gcc-aarch64-linux-gnu libc6-dev-arm64-cross libclang-dev' >&2
}

# make_server: Debian's Redis for arm64 with its libraries, and the qemu that runs it, in $work/root.
make_server() {
    unpack machine qemu-user-static || unpack machine qemu-user || fail "no qemu: $(update_errors)"
    write_sources arm64 deb "$(debian_release)"
    # apt is to see no package of this machine, which is another one.
    printf 'APT::Architecture "arm64";\nAPT::Architectures "arm64";\nDir::State::status "/dev/null";\n' >"$work/arm64.conf"
    arm64() {
        command=$1
        shift
        apt_with arm64 "$command" -c "$work/arm64.conf" "$@"
    }
    arm64 apt-get -q update >&2
    libraries=$(arm64 apt-cache depends --recurse --important redis-tools | awk '/^lib/ && !/:/ { print }' | sort -u)
    mkdir -p "$work/arm64" "$work/debs"
    # shellcheck disable=SC2086 # one word a package
    (cd "$work/debs" && arm64 apt-get -q download redis-server redis-tools libc6 $libraries) >&2
    for deb in "$work"/debs/*.deb; do
        dpkg -x "$deb" "$work/arm64"
    done
    qemu=$(cd "$work/root/usr/bin" && ls qemu-aarch64-static qemu-aarch64 2>/dev/null | head -n 1)
    printf '#!/bin/sh\nexec "%s" -L "%s" "%s" "$@"\n' "$home/root/usr/bin/$qemu" "$home/arm64" \
        "$home/arm64/usr/bin/redis-server" >"$work/redis-server"
    chmod 755 "$work/redis-server"
}

# in_compiler FOLDER COMMAND ...: runs a command in that root folder, which has these sources in /dsync.
in_compiler() {
    folder=$1
    shift
    mkdir -p "$folder/dsync" "$folder/build" "$folder/cargo/registry"
    # shellcheck disable=SC2016 # for the inner shell
    unshare --mount sh -euc '
        folder=$1 registry=$2
        shift 2
        mount --bind "$PWD" "$folder/dsync"
        mount --bind "$registry" "$folder/cargo/registry"
        mount -t proc proc "$folder/proc"
        cp /etc/resolv.conf /etc/hosts "$folder/etc/"
        exec chroot "$folder" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/cargo CARGO_HOME=/cargo \
            DEBIAN_FRONTEND=noninteractive "$@"
    ' sh "$folder" "$registry" "$@"
}

[ "$(id -u)" -eq 0 ] || fail 'this needs root, for a chroot.'
cargo fetch --locked --quiet
if [ ! -x "$home/redis-server" ]; then
    work=$home.work
    rm -rf "$work" "$home"
    mkdir -p "$work/apt"
    apt_home=$work/apt
    # shellcheck source=scripts/apt.sh
    . scripts/apt.sh
    update machine
    make_compiler
    make_server
    rm -rf "$work/apt" "$work/debs"
    mv "$work" "$home"
fi

in_compiler "$home/compiler" env CARGO_TARGET_DIR=/build CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
    BINDGEN_EXTRA_CLANG_ARGS='--target=aarch64-linux-gnu --sysroot=/usr/aarch64-linux-gnu -I/usr/aarch64-linux-gnu/include' \
    cargo build --manifest-path /dsync/Cargo.toml --package dsync --release --locked --offline --target "$target"
cp "$home/compiler/build/$target/release/libdsync.so" "$home/libdsync.so"
# shellcheck disable=SC2086 # one word a test
DSYNC_TEST_SERVER=$home/redis-server DSYNC_TEST_MODULE=$home/libdsync.so \
    cargo test --test server -- ${TESTS:-commands:: waiting::}
