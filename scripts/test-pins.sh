#!/bin/sh
# test-pins.sh: fails if a workflow or a Dockerfile names an action or an image without its digest, an action without its
# version as a comment, or if the workflows and the Dockerfiles name different images of Rust.
set -eu
cd "$(dirname "$0")/.."

fail() {
    printf 'test-pins: %s:\n%s\n' "$1" "$2" >&2
    exit 1
}

workflows='.github/workflows/*.yml'
dockerfiles='packaging/docker/Dockerfile.*'

# shellcheck disable=SC2086 # patterns
loose=$(grep -n 'uses:' $workflows | grep -v 'uses: [^@ ]*@[0-9a-f]\{40\} # v[0-9.]*$' || true)
[ -z "$loose" ] || fail 'actions without a digest and a version' "$loose"
# shellcheck disable=SC2086
loose=$(grep -n -e 'container:' -e 'image:' $workflows |
    grep -v '@sha256:[0-9a-f]\{64\}"' || true)
# shellcheck disable=SC2016,SC2086 # the variable of the Dockerfile
loose=$loose$(grep -n -e '^FROM' -e '^ARG SERVER' $dockerfiles |
    grep -v -e '@sha256:[0-9a-f]\{64\}\( AS build\)\?$' -e 'FROM ${SERVER}$' || true)
[ -z "$loose" ] || fail 'images without a digest' "$loose"
# shellcheck disable=SC2086
rust=$(grep -oh 'rust:[^" ]*' $workflows $dockerfiles | grep @ | sort -u)
[ "$(echo "$rust" | wc -l)" = 1 ] || fail 'different images of Rust' "$rust"
