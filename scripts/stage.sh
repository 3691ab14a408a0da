#!/bin/sh
# stage.sh module|tool FOLDER: builds the module or the tool as packages contain it, and installs it under FOLDER as it
# will be under /. deb.sh and dist.sh call it, so that all packages have the same files.
#
# The same sources and the same compiler give the same bytes, whoever builds and wherever: the symbols are stripped, and
# the paths of this machine are replaced, which the compiler otherwise writes into the messages of panics. That needs
# compiler flags of its own, and flags make cargo build everything anew; so these builds have a folder of their own,
# target/package, and leave those of `make build` and `make cli` as they are.
set -eu
cd "$(dirname "$0")/.."

what=${1:-}
folder=${2:-}
case $what in
module | tool) ;;
*) folder='' ;;
esac
if [ -z "$folder" ]; then
    echo "usage: stage.sh module|tool FOLDER" >&2
    exit 2
fi

sh scripts/need.sh build >&2

# The unit separator, because a path may contain a space.
flags=$(printf -- '--remap-path-prefix=%s=dsync\037--remap-path-prefix=%s=cargo' \
    "$PWD" "${CARGO_HOME:-$HOME/.cargo}")

# build MANIFEST TARGET: builds the release of this manifest into the folder TARGET.
build() {
    env -u RUSTFLAGS CARGO_ENCODED_RUSTFLAGS="$flags" CARGO_PROFILE_RELEASE_STRIP=symbols CARGO_TARGET_DIR="$2" \
        cargo build --release --locked --manifest-path "$1" >&2
}

# What the install scripts print is for people who install, so it is not shown here.
case $what in
module)
    build Cargo.toml "$PWD/target/package"
    CARGO_TARGET_DIR=target/package DESTDIR=$folder MODULE_DIR=/usr/lib/redis/modules sh scripts/install.sh >/dev/null
    ;;
tool)
    build cli/Cargo.toml "$PWD/target/package/cli"
    rm -rf target/package/cli/share
    target/package/cli/release/dsync generate target/package/cli/share
    CLI_TARGET_DIR=target/package/cli DESTDIR=$folder PREFIX=/usr sh scripts/install-cli.sh >/dev/null
    ;;
esac
