#!/bin/sh
# install.sh: installs the built module, and prints the line that loads it. `make install` calls it.
#
# The folder is MODULE_DIR, or lib/redis/modules under PREFIX, where the user gives one of them; DESTDIR goes
# before it, and is part of no printed line. Without them it is /usr/local/lib/redis/modules, unless the
# service that Debian's package brings is there: its unit lets the server execute nothing but what is under
# /usr/lib and /lib (NoExecPaths=/), so a module elsewhere is refused with "failed to map segment", and the
# folder is /usr/lib/redis/modules.
set -eu

module=${CARGO_TARGET_DIR:-target}/release/libdsync.so
destdir=${DESTDIR:-}

# Prints the packaged service that is on this machine, or under DESTDIR; nothing where there is none.
packaged_service() {
    for name in redis-server valkey-server; do
        for units in /usr/lib/systemd/system /lib/systemd/system; do
            if [ -f "$destdir$units/$name.service" ]; then
                echo "$name"
                return
            fi
        done
    done
}

if [ ! -f "$module" ]; then
    echo 'make install: nothing is built yet; run `make build` first.' >&2
    exit 1
fi

service=$(packaged_service)
if [ -n "${MODULE_DIR:-}" ]; then
    folder=$MODULE_DIR
elif [ -n "${PREFIX:-}" ]; then
    folder=$PREFIX/lib/redis/modules
elif [ -n "$service" ]; then
    folder=/usr/lib/redis/modules
    echo "Installing to $folder: the packaged $service.service executes nothing outside of /usr/lib."
else
    folder=/usr/local/lib/redis/modules
fi

install -D -m 755 "$module" "$destdir$folder/dsync.so"

echo 'Installed. The line for redis.conf or valkey.conf:'
echo "    loadmodule $folder/dsync.so"
case $folder in
/usr/lib/* | /lib/*) ;;
*)
    echo "A service with NoExecPaths=/ in its unit, as Debian's packages have it, also needs these lines"
    echo "(systemctl edit ${service:-redis-server}, then restart it):"
    echo '    [Service]'
    echo "    ExecPaths=$folder"
    ;;
esac
