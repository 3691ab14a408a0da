#!/bin/sh
# dist.sh: builds the archive of a release, dsync-VERSION-MACHINE.tar.gz, with its checksum into target/dist, for Linux of
# any distribution. `make dist` calls it.
#
# The archive has bin, lib and share as a PREFIX such as /usr/local has them, and beside them the docs, contrib/, the
# licences, the example configuration, and the client packages, which are installed from there. It runs from where it is
# unpacked as well.
#
# The same sources and compiler give the same bytes: stage.sh sees to it for the programs; the archive names no user, is
# sorted, and all its files have the date that release.sh sets.
set -eu
cd "$(dirname "$0")/.."

# shellcheck source=scripts/release.sh
. scripts/release.sh

name=dsync-$version-$(uname -m)
work=$PWD/target/package/dist
rm -rf "$work"
mkdir -p "$work/$name" target/dist

sh scripts/stage.sh module "$work/stage"
sh scripts/stage.sh tool "$work/stage"
mv "$work/stage/usr/"* "$work/$name/"
cp CHANGELOG.md LICENSE-APACHE LICENSE-MIT redis.conf.example "$work/$name/"
copy_docs "$work/$name"
find clients/*/src clients/*/README.md clients/*/LICENSE-* clients/*/pyproject.toml clients/*/Cargo.* \
    clients/*/package*.json clients/*/tsconfig.json clients/go clients/PROTOCOL.md \
    -type f ! -name '*_test.go' ! -name '*.sh' ! -path '*/__pycache__/*' ! -path '*.egg-info/*' -print0 | xargs -0 cp --parents -t "$work/$name"
perl scripts/relink.pl "$work/$name"
{
    echo 'The programs in this archive contain parts of the Rust standard library (MIT OR Apache-2.0, copyright the Rust'
    echo 'project contributors) and of the crates below, each under the licence in brackets.'
    sh scripts/notices.sh Cargo.toml
    sh scripts/notices.sh cli/Cargo.toml
} >"$work/$name/THIRD-PARTY-NOTICES.txt"

tar --create --directory "$work" --sort=name --format=ustar --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
    --mtime="@$SOURCE_DATE_EPOCH" "$name" | gzip -9n >"target/dist/$name.tar.gz"
(cd target/dist && sha256sum "$name.tar.gz" >"$name.tar.gz.sha256")

echo "target/dist/$name.tar.gz"
