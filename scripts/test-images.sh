#!/bin/sh
# test-images.sh [redis|valkey ...]: builds the images of packaging/docker (both) with buildah, which needs no daemon, starts
# what they start, and asks it for a lock. Needs root and Debian 12.
#
# The images that the Dockerfiles name are not fetched: Debian's packages stand in for them. For Rust's that is Debian 12 with
# a C compiler and this machine's own cargo; for the server's, Debian 12 with its redis-server, or valkey-server of the
# backports. So the lines of the Dockerfiles are tested, and not the entry points of the official images.
set -eu
cd "$(dirname "$0")/.."

products=${*:-redis valkey}
sh scripts/need.sh build images
work=$PWD/target/images
apt_home=$work/apt
mkdir -p "$apt_home"
# shellcheck source=scripts/apt.sh
. scripts/apt.sh
# shellcheck source=scripts/ports.sh
. scripts/ports.sh

# buildah with its images under target/, and without namespaces, which a machine may not allow.
in_work() {
    command=$1
    shift
    case $command in run | build) set -- --isolation chroot "$@" ;; esac
    buildah --root "$work/storage" --runroot "$work/run" --storage-driver vfs "$command" "$@"
}

has_image() {
    in_work images --quiet "localhost/$1" >/dev/null 2>&1
}

# install IMAGE PACKAGE ...: makes an image of the base with these packages of Debian.
install() {
    image=$1
    shift
    has_image "$image" && return
    container=$(in_work from --pull-never localhost/dsync-base)
    in_work run "$container" -- sh -c \
        'apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends "$@"' sh "$@"
    in_work config --cmd '' --env PATH=/usr/local/cargo/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        --env CARGO_HOME=/usr/local/cargo --env RUSTUP_HOME=/usr/local/rustup "$container"
    in_work commit --quiet --rm "$container" "localhost/$image"
}

if ! has_image dsync-base; then
    update machine
    write_sources backports deb bookworm bookworm-backports
    archive=$(sed -n 's/.* \([a-z]*:[^ ]*\) bookworm main$/\1/p' "$apt_home/backports/sources.list")
    rm -rf "$work/base"
    debootstrap --variant=minbase --include=ca-certificates bookworm "$work/base" "$archive"
    cp "$apt_home/backports/sources.list" "$work/base/etc/apt/sources.list"
    container=$(in_work from scratch)
    in_work add --quiet "$container" "$work/base" /
    in_work commit --quiet --rm "$container" localhost/dsync-base
    rm -rf "$work/base"
fi
install dsync-rust gcc libc6-dev
cargo_home=${CARGO_HOME:-$HOME/.cargo}
rustup_home=${RUSTUP_HOME:-$HOME/.rustup}

sh scripts/server.sh redis >"$work/server"
cli=$(dirname "$(cat "$work/server")")/redis-cli
for product in $products; do
    install "dsync-$product" "$product-server" "$product-tools"
    in_work build --quiet --layers --pull-never --from localhost/dsync-rust --build-arg "SERVER=localhost/dsync-$product" \
        --volume "$cargo_home:/usr/local/cargo" --volume "$rustup_home:/usr/local/rustup" \
        --file "packaging/docker/Dockerfile.$product" --tag "localhost/$product-dsync" .
    container=$(in_work from --pull-never "localhost/$product-dsync")
    command=$(in_work inspect --format '{{range .OCIv1.Config.Cmd}}{{.}} {{end}}' "$container")
    echo "dsync: the image of $product starts $command"
    port=$(next_free_port 16379)
    # shellcheck disable=SC2086 # a word each
    in_work run "$container" -- $command --port "$port" >"$work/$product.log" 2>&1 &
    server=$!
    said=''
    for _ in $(seq 100); do
        said=$("$cli" -p "$port" DLOCK.ACQUIRE nightly PX 60000 2>&1) && case $said in *[0-9]*) break ;; esac
        sleep 0.2
    done
    "$cli" -p "$port" SHUTDOWN NOSAVE >/dev/null 2>&1 || kill "$server"
    wait "$server" || true
    in_work rm "$container" >/dev/null
    case $said in
    *Could* | *ERR* | '')
        echo "dsync: the image of $product grants no lock: $said" >&2
        tail -n 20 "$work/$product.log" >&2
        exit 1
        ;;
    esac
    echo "dsync: the image of $product grants a lock: $(echo "$said" | tr '\n' ' ')"
done
