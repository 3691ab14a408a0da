#!/bin/sh
# install-cli.sh: installs the built tool `dsync`, its man pages and its shell completions. `make install-cli` calls it.
#
# They go under PREFIX (/usr/local unless set), where man and the shells look: bin, share/man/man1,
# share/bash-completion/completions, share/zsh/site-functions and share/fish/vendor_completions.d. DESTDIR is put before
# all of them. Builds nothing, because root often has no cargo. stage.sh gives the folder of its own build in CLI_TARGET_DIR.
set -eu
cd "$(dirname "$0")/.."

target=${CLI_TARGET_DIR:-target/cli}
built=$target/release/dsync
generated=$target/share
prefix=${DESTDIR:-}${PREFIX:-/usr/local}

if [ ! -x "$built" ] || [ ! -d "$generated/man" ]; then
    echo 'make install-cli: nothing is built yet; run `make cli` first.' >&2
    exit 1
fi

install -D -m 755 "$built" "$prefix/bin/dsync"
for page in "$generated"/man/*.1; do
    install -D -m 644 "$page" "$prefix/share/man/man1/$(basename "$page")"
done
install -D -m 644 "$generated/completions/dsync.bash" "$prefix/share/bash-completion/completions/dsync"
install -D -m 644 "$generated/completions/_dsync" "$prefix/share/zsh/site-functions/_dsync"
install -D -m 644 "$generated/completions/dsync.fish" "$prefix/share/fish/vendor_completions.d/dsync.fish"

echo "Installed $prefix/bin/dsync, with man pages (man dsync-run) and completions."
