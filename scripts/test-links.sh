#!/bin/sh
# test-links.sh FOLDER: fails if a page (*.md) in FOLDER has a link or a picture that leads to no file, and prints each.
# test-deb.sh and test-dist.sh call it for what they have unpacked. Links to the web are not followed.
set -eu
cd "$1"

dead=$(find . -name '*.md' | LC_ALL=C sort | while read -r page; do
    # Without blocks of code; one target a line, without its anchor.
    awk '/^```/ { code = !code } !code' "$page" | grep -o '](\([^()]*\))' |
        sed 's/^](//; s/)$//; s/#.*//' | grep -v -e '^[a-z]*:' -e '^$' | while read -r target; do
        [ -e "$(dirname "$page")/$target" ] || echo "$page: $target"
    done || true
done)
if [ -n "$dead" ]; then
    printf 'dead links in %s:\n%s\n' "$1" "$dead" >&2
    exit 1
fi
