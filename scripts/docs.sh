#!/bin/sh
# docs.sh: builds the pages into target/docs, as a site that is read from files, without a server or a network, its search
# too. `make docs` calls it. The order of the pages is docs/SUMMARY.md, that of the pages of commands is their index,
# docs/commands/README.md; the settings are docs/book.toml.
#
# mdBook makes it, because it reads Markdown as code hosts and tests/readme do, and because its search needs no server. Its
# version is pinned here; it is built once, under target/, in a minute or two. Rejected: MkDocs, whose Python-Markdown
# reads lists and the blocks in them differently, and whose search asks a server; Sphinx with MyST, which needs no
# compiler, but a theme of others for a dark page, and anchors and links to sources that are set up by hand.
#
# A linked source, such as contrib/prometheus/alerts.yml, is copied beside the pages. A link to a folder without a page
# becomes its words.
set -eu
cd "$(dirname "$0")/.."

version=0.5.4
home=$PWD/target/mdbook-$version
if [ ! -x "$home/bin/mdbook" ]; then
    command -v cargo >/dev/null || sh scripts/need.sh build
    echo "dsync: building mdBook $version under target/ (nothing is installed) ..." >&2
    CARGO_TARGET_DIR=$home/build CARGO_PROFILE_DEV_DEBUG=0 cargo install --quiet --debug --locked --no-default-features \
        --features search --root "$home" "mdbook@$version" >&2
    rm -rf "$home/build"
fi

work=$PWD/target/docs.work
rm -rf "$work"
mkdir -p "$work/src"
cp docs/book.toml "$work/"
# The pages of the commands stand below their index, in its order. The links of SUMMARY.md are seen from docs/.
sed -n 's#^| \[\([A-Z.]*\)\](\([a-z.]*\)).*#  - [\1](commands/\2)#p' docs/commands/README.md >"$work/commands"
sed -e '/](commands\/README\.md)/r '"$work/commands" docs/SUMMARY.md |
    sed -e 's|](\.\./|](|; t' -e 's|](|](docs/|' >"$work/src/SUMMARY.md"
sed -n 's|.*](\([^)]*\)).*|\1|p' "$work/src/SUMMARY.md" | xargs cp --parents -t "$work/src"
perl scripts/relink.pl --sources . "$work/src"
rm -rf target/docs
"$home/bin/mdbook" build --dest-dir "$PWD/target/docs" "$work" >&2
echo "file://$PWD/target/docs/index.html"
