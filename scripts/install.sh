#!/bin/sh
# install.sh: installs the built module, and prints the line that loads it. `make install` calls it.
#
# The folder is MODULE_DIR, or lib/redis/modules under PREFIX, if the user gives one of them. DESTDIR is put before the
# folder, but is not part of the printed line. Without both, the folder is /usr/local/lib/redis/modules, or
# /usr/lib/redis/modules if the service of a Debian package is installed. The unit of that service lets the server
# execute only files under /usr/lib and /lib (NoExecPaths=/); a module elsewhere fails with "failed to map segment".
set -eu

module=${CARGO_TARGET_DIR:-target}/release/libdsync.so
destdir=${DESTDIR:-}

# Prints the name of the packaged service that is installed, under DESTDIR if that is set; otherwise prints nothing.
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
