#!/bin/sh
# test-dist.sh: tests the archive of `make dist`: its checksum, its files and links, that building it again gives the same
# bytes, and that a server loads the module from where it was unpacked, and the tool takes a lock there. It builds with
# `make dist`, and starts the server in DSYNC_TEST_SERVER, or the machine's or Debian's Redis, on a Unix socket.
set -eu
cd "$(dirname "$0")/.."
sources=$PWD

fail() {
    echo "test-dist: $*" >&2
    exit 1
}

work=$(mktemp -d)
server=''
end() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    rm -rf "$work"
}
trap end EXIT
trap 'exit 1' HUP INT TERM

sh scripts/need.sh cli
program=${DSYNC_TEST_SERVER:-$(sh scripts/server.sh redis)}
cli=$(command -v redis-cli || command -v valkey-cli || echo "${program%-server}-cli")
archive=$(sh scripts/dist.sh | tail -n 1)
cp "$archive" "$work/first.tar.gz"
# Build again with other habits: the result must be the same.
(umask 077 && sh scripts/dist.sh >/dev/null)
cmp "$work/first.tar.gz" "$archive" || fail "$archive differs when it is built again"

cp "$archive" "$archive.sha256" "$work/"
cd "$work"
sha256sum --quiet --check "${archive##*/}.sha256" || fail 'the checksum is wrong'
tar -xzf "${archive##*/}"
name=${archive##*/}
cd "${name%.tar.gz}" || fail "$archive has no folder of its name"
for file in README.md CHANGELOG.md SECURITY.md TRACK-RECORD.md RELIABILITY.md LICENSE-APACHE LICENSE-MIT THIRD-PARTY-NOTICES.txt redis.conf.example \
    docs/upgrading.md contrib/prometheus/alerts.yml contrib/prometheus/dsync.lua contrib/grafana/dsync.json \
    clients/python/pyproject.toml clients/python/src/dsync/__init__.py clients/node/package-lock.json clients/node/src/index.ts \
    clients/rust/Cargo.toml clients/rust/src/lib.rs clients/go/go.mod clients/go/claim.go lib/redis/modules/dsync.so bin/dsync share/man/man1/dsync.1 \
    share/bash-completion/completions/dsync; do
    [ -s "$file" ] || fail "$archive has no $file"
done
sh "$sources/scripts/test-links.sh" "$PWD" || fail 'the pages of the archive have dead links, see above'

socket=$work/socket
"$program" --port 0 --unixsocket "$socket" --dir "$work" --save '' --loadmodule "$PWD/lib/redis/modules/dsync.so" \
    >"$work/log" 2>&1 &
server=$!
tries=0
until [ "$("$cli" -s "$socket" PING 2>/dev/null)" = PONG ]; do
    kill -0 "$server" 2>/dev/null || fail "the server does not start with the module: $(cat "$work/log")"
    tries=$((tries + 1))
    [ "$tries" -lt 300 ] || fail "the server does not answer: $(cat "$work/log")"
    sleep 0.1
done
got=$("$cli" -s "$socket" DLOCK.ACQUIRE trial:1 TOKEN trial-token | head -n 1)
[ "$got" = trial-token ] || fail "DLOCK.ACQUIRE answered $got"
got=$(bin/dsync --url "unix://$socket" run --lock trial:2 -- echo worked)
[ "$got" = worked ] || fail "dsync run printed $got"
echo "test-dist: ${archive##*/} is complete, and a server loads its module."
