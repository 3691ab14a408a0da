#!/bin/sh
# server.sh redis|valkey: prints the path of a server that runs on this machine; fails, saying why, where
# none can be had. Beside a server that it unpacked there is a redis-cli or valkey-cli.
#
# A server on PATH is taken as it is. Otherwise Debian's packages are unpacked under target/servers, with
# the libraries that the machine lacks: no rights are needed, no package is installed, no service starts,
# no configuration changes, and `make clean` removes it all. (Installing redis-server would start a
# service on port 6379, and keeping Debian from it means a policy file that concerns every package.)
#
# Debian 12 has Redis 7.0 in its main archive and Valkey 8.0 in its backports. The backports are asked for
# through a list of sources that only this script's apt reads, at the address that the machine's own
# sources give for the main archive.
set -eu

name=${1:-}
case $name in
redis | valkey) ;;
*)
    echo "usage: server.sh redis|valkey" >&2
    exit 2
    ;;
esac

if command -v "$name-server" 2>/dev/null; then
    exit 0
fi

servers=$(cd "$(dirname "$0")/.." && pwd)/target/servers
home=$servers/$name
server=$home/$name-server
if "$server" --version >/dev/null 2>&1; then
    echo "$server"
    exit 0
fi

fail() {
    echo "dsync: no $name-server here: $1" >&2
    exit 1
}

if ! command -v apt-get >/dev/null 2>&1 || ! command -v dpkg >/dev/null 2>&1; then
    fail "it is not on PATH, and without apt this cannot fetch it. Please install it."
fi
echo "dsync: unpacking Debian's $name-server under target/servers (nothing is installed) ..." >&2

# Made aside and moved into place when it runs, so that an interrupted run leaves nothing half-done.
work=$servers/$name.work
rm -rf "$work" "$home"
mkdir -p "$work/root" "$work/debs"

# apt_with SET COMMAND ...: apt with its own lists and cache, so that it needs no rights and leaves the
# machine's alone. SET is a directory under $work; a file `sources.list` in it replaces the machine's.
apt_with() {
    set_dir=$work/$1
    shift
    mkdir -p "$set_dir/lists/partial" "$set_dir/cache/archives/partial"
    {
        printf 'Dir::State::Lists "%s/lists";\n' "$set_dir"
        printf 'Dir::Cache "%s/cache";\n' "$set_dir"
        printf 'APT::Sandbox::User "%s";\n' "$(id -un)"
        if [ -f "$set_dir/sources.list" ]; then
            printf 'Dir::Etc::SourceList "%s/sources.list";\nDir::Etc::SourceParts "/dev/null";\n' "$set_dir"
        fi
    } >"$set_dir/apt.conf"
    APT_CONFIG=$set_dir/apt.conf "$@"
}

# fetch SET PACKAGE ...: unpacks the packages into $work/root.
fetch() {
    fetch_set=$1
    shift
    (cd "$work/debs" && apt_with "$fetch_set" apt-get -q download "$@") >&2 || return 1
    for deb in "$work"/debs/*.deb; do
        dpkg -x "$deb" "$work/root"
        rm "$deb"
    done
}

# Whether the machine's release is Debian 12; its backports are then what `backports` asks for.
is_bookworm() {
    # shellcheck source=/dev/null
    (. /etc/os-release && [ "${ID:-}" = debian ] && [ "${VERSION_CODENAME:-}" = bookworm ])
}

# Writes the sources of the set `backports`, from the machine's own for the main archive. To be called
# after the set `machine` was updated: apt lists nothing of sources it has not read.
write_backports_source() {
    mkdir -p "$work/backports"
    # apt knows every form in which sources are written.
    # shellcheck disable=SC2016 # apt replaces these, not the shell
    archive=$(apt_with machine apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
        awk '$2 == "bookworm" && $3 == "main" { print $1; exit }')
    [ -n "$archive" ] || return 1
    keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    signed=''
    [ ! -r "$keyring" ] || signed="[signed-by=$keyring] "
    echo "deb $signed$archive bookworm-backports main" >"$work/backports/sources.list"
}

# A source of the machine's that has nothing to do with us may fail to update: the download decides.
apt_with machine apt-get -q update >"$work/update.log" 2>&1 || true
packages="$name-server $name-tools"
# shellcheck disable=SC2086 # one word a package
if apt_with machine apt-cache show $packages >/dev/null 2>&1; then
    fetch machine $packages || fail "apt has it and could not download it."
elif [ "$name" = valkey ] && is_bookworm && write_backports_source; then
    apt_with backports apt-get -q update >>"$work/update.log" 2>&1 || true
    fetch backports $packages || fail "the backports of Debian 12 could not be read:
$(cat "$work/update.log")"
else
    fail "apt knows no such package here. (Redis is in Debian 12 and later; Valkey in the backports of Debian 12, and in later releases.)
$(grep '^[EW]:' "$work/update.log")"
fi

binary=$work/root/usr/bin/$name-server

# The directories of the unpacked libraries, as LD_LIBRARY_PATH has them; empty where none were needed.
library_path() {
    find "$work/root" -name 'lib*.so*' -exec dirname {} \; | sort -u | paste -s -d : -
}

missing_libraries() {
    LD_LIBRARY_PATH=$(library_path) ldd "$binary" | awk '/not found/ { print $1 }'
}

# Every library package that the server depends on, however far, and that is not installed; never the C
# library, which must be the one that the machine's loader belongs to.
uninstalled_library_packages() {
    set_of_tools=machine
    [ ! -d "$work/backports" ] || set_of_tools=backports
    direct=$(apt_with "$set_of_tools" apt-cache depends --important "$name-tools" |
        awk '$1 == "Depends:" { gsub(/[<>]/, "", $2); if ($2 ~ /^lib/) print $2 }')
    # shellcheck disable=SC2086 # one word a package
    apt_with machine apt-cache depends --recurse --important $direct |
        awk '/^lib/ && !/^libc6/ && !/:/ { print }' | sort -u |
        while read -r package; do
            dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q '^install ok' || echo "$package"
        done
}

if [ -n "$(missing_libraries)" ]; then
    packages=$(uninstalled_library_packages)
    # shellcheck disable=SC2086 # one word a package
    fetch machine $packages || fail "its libraries could not be downloaded: $packages"
    [ -z "$(missing_libraries)" ] || fail "it lacks libraries: $(missing_libraries)"
fi

# wrap PROGRAM: a script that replaces itself by the program, so that the started process is the program,
# and a signal or a process id means it.
wrap() {
    {
        echo '#!/bin/sh'
        [ -z "$libraries" ] || echo "export LD_LIBRARY_PATH='$libraries'"
        echo "exec '$home/root/usr/bin/$1' \"\$@\""
    } >"$work/$1"
    chmod 755 "$work/$1"
}
libraries=$(library_path | sed "s|$work|$home|g")
wrap "$name-server"
wrap "$name-cli"
rm -rf "$work/machine" "$work/backports" "$work/debs" "$work/update.log"
mv "$work" "$home"
"$server" --version >/dev/null || fail "it was unpacked and does not run."
echo "$server"
