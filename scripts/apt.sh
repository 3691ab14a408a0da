#!/bin/sh
# apt.sh: read (with `.`) by the scripts that bring servers. apt with lists and cache of its own, under
# $apt_home: it needs no rights, and leaves the machine's configuration, lists and packages alone.

# apt_with SET COMMAND ...: a set is what one list of sources has led to, a directory under $apt_home; a
# file `sources.list` in it replaces the machine's sources.
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

# update SET: a source that has nothing to do with us may fail, so what is asked for next decides. What
# apt said is in $apt_home/update.log.
update() {
    apt_with "$1" apt-get -q update >>"$apt_home/update.log" 2>&1 || true
}

update_errors() {
    grep '^[EW]:' "$apt_home/update.log" || true
}

# The release of Debian that this machine runs, such as bookworm; fails on others.
debian_release() {
    # shellcheck source=/dev/null
    (. /etc/os-release && [ "${ID:-}" = debian ] && [ -n "${VERSION_CODENAME:-}" ] && echo "$VERSION_CODENAME")
}

# write_sources SET deb|deb-src RELEASE ...: the set is to read these releases, at the address that the
# machine's own sources give for the main archive. To be called after the set `machine` was updated: apt
# lists nothing of sources it has not read.
write_sources() {
    sources=$apt_home/$1/sources.list
    kind=$2
    shift 2
    mkdir -p "${sources%/*}"
    own_release=$(debian_release) || return 1
    # apt knows every form in which sources are written.
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
