#!/bin/sh
# apt.sh: functions for the scripts that fetch programs of Debian, which read this file with `.`. They use apt with its own
# lists and cache under $apt_home, so they need no root rights, and do not change the machine's configuration, lists or
# packages. Those that unpack do it in $work/root; the caller moves $work to its place when it is complete.

# apt_with SET COMMAND ...: runs an apt command with the lists and the cache of a set, which is a directory under
# $apt_home. A file `sources.list` in it replaces the machine's sources.
apt_with() {
    set_dir=${apt_home:?}/$1
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

# update SET: updates the set's lists. Does not fail, because a source that is not needed may fail; the next command
# fails if a needed list is missing. The output of apt is in $apt_home/update.log.
update() {
    apt_with "$1" apt-get -q update >>"$apt_home/update.log" 2>&1 || true
}

update_errors() {
    grep '^[EW]:' "$apt_home/update.log" || true
}

# Prints the release of Debian that this machine runs, such as bookworm. Fails on other systems.
debian_release() {
    # shellcheck source=/dev/null
    (. /etc/os-release && [ "${ID:-}" = debian ] && [ -n "${VERSION_CODENAME:-}" ] && echo "$VERSION_CODENAME")
}

# write_sources SET deb|deb-src RELEASE ...: writes a sources.list for the set with these releases, at the address that
# the machine's own sources have for the main archive. Call it after `update machine`, because apt knows no address of
# sources that it has not read.
write_sources() {
    sources=$apt_home/$1/sources.list
    kind=$2
    shift 2
    mkdir -p "${sources%/*}"
    own_release=$(debian_release) || return 1
    # Ask apt for the address, because it understands every format of source lists.
    # shellcheck disable=SC2016 # apt replaces these, not the shell
    archive=$(apt_with machine apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
        awk -v release="$own_release" '$2 == release && $3 == "main" { print $1; exit }')
    [ -n "$archive" ] || return 1
    keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    signed=''
    [ ! -r "$keyring" ] || signed="[signed-by=$keyring] "
    for release in "$@"; do
        echo "$kind $signed$archive $release main"
    done >"$sources"
}

# unpack SET PACKAGE ...: downloads the packages and unpacks them into $work/root.
unpack() {
    unpack_set=$1
    shift
    mkdir -p "${work:?}/root" "$work/debs"
    (cd "$work/debs" && apt_with "$unpack_set" apt-get -q download "$@") >&2 || return 1
    for deb in "$work"/debs/*.deb; do
        dpkg -x "$deb" "$work/root"
        rm "$deb"
    done
}

# Prints the directories of the unpacked libraries for LD_LIBRARY_PATH; empty if there are none.
library_path() {
    find "$work/root" -name 'lib*.so*' -exec dirname {} \; | sort -u | paste -s -d : -
}

# Prints the libraries that PROGRAM lacks.
missing_libraries() {
    LD_LIBRARY_PATH=$(library_path) ldd "$1" | awk '/not found/ { print $1 }'
}

# uninstalled_library_packages SET PACKAGE: prints every library package that the package depends on, also indirectly, and
# that is not installed. Its own dependencies are those that SET knows, theirs those of this machine. Leaves out the C
# library, which must be the machine's own, because its loader belongs to it.
uninstalled_library_packages() {
    direct=$(apt_with "$1" apt-cache depends --important "$2" |
        awk '$1 == "Depends:" { gsub(/[<>]/, "", $2); if ($2 ~ /^lib/) print $2 }')
    # shellcheck disable=SC2086 # one word a package
    apt_with machine apt-cache depends --recurse --important $direct |
        awk '/^lib/ && !/^libc6/ && !/:/ { print }' | sort -u |
        while read -r package; do
            dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q '^install ok' || echo "$package"
        done
}
