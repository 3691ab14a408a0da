#!/bin/sh
# prepare.sh: installs and builds what the drivers and leaders need under target/clients/conformance of the repository, and
# exports where it is. test.sh, soak.sh and leaders.sh, which are in this folder then, read it with `.`; where -d among the
# arguments begins with a language, no others are built.
here=$PWD
clients=$(dirname "$here")
repository=$(cd "$clients/.." && pwd)
home=$repository/target/clients/conformance
export PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1
mkdir -p "$home/go"

language=''
before=''
for word in "$@"; do
    case $before:$word in
    -d:python* | -d:node* | -d:rust* | -d:go* | -d:dsync*) language=${word%% *} ;;
    esac
    before=$word
done

# wants LANGUAGE: whether its drivers are to be played.
wants() {
    [ -z "$language" ] || [ "$language" = "$1" ]
}

requirements=$clients/python/tests/requirements.txt
if ! cmp -s "$requirements" "$home/python/requirements.txt"; then
    rm -rf "$home/python"
    "${PYTHON:-python3}" -m venv "$home/python"
    "$home/python/bin/pip" install --quiet --requirement "$requirements"
    cp "$requirements" "$home/python/requirements.txt"
fi

if wants node; then
    if ! cmp -s "$here/drivers/package-lock.json" "$home/node/package-lock.json"; then
        rm -rf "$home/node"
        mkdir -p "$home/node"
        cp "$here/drivers/package.json" "$here/drivers/package-lock.json" "$home/node/"
        (cd "$home/node" && npm ci --silent --no-audit --no-fund --ignore-scripts)
    fi
    sh "$clients/node/build.sh" "$home/node/node_modules/dsync-client"
    cp "$here/drivers/node.js" "$here/leaders/leader.js" "$home/node/"
fi

if wants rust; then
    CARGO_TARGET_DIR=$home/rust cargo build --quiet --locked --manifest-path "$here/drivers/rust/Cargo.toml"
fi
if wants dsync; then
    CARGO_TARGET_DIR=$repository/target/cli cargo build --quiet --locked --manifest-path "$repository/cli/Cargo.toml"
fi
if wants go; then
    go=$(sh "$repository/scripts/go.sh")
    GOWORK=$repository/target/go/go.work GOFLAGS='' GOPROXY=off GOTOOLCHAIN=local \
        "$go" build -o "$home/go/" dsync-conformance-driver dsync-conformance-driver/leader
fi

export PYTHONPATH="$clients/python/src:$clients/python/tests" DSYNC_PYTHON="$home/python/bin/python"
export DSYNC_NODE_DRIVER="$home/node/node.js" DSYNC_RUST_DRIVER="$home/rust/debug/dsync-conformance-driver"
export DSYNC_PROGRAM="$repository/target/cli/debug/dsync"
export DSYNC_GO_DRIVER="$home/go/dsync-conformance-driver"
