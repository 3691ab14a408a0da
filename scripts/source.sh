#!/bin/sh
# source.sh: functions for the scripts that build servers from Debian's source packages, which read this file with `.`.
# They use apt with lists of their own (apt.sh), without root rights, and apt checks what it fetches against the archive's
# signature. The source is as upstream released it, without Debian's patches.

# The releases of Debian in which the servers are searched for, from the newest on.
releases='sid trixie bookworm-backports bookworm bullseye'

# Reduces versions as Debian writes them, such as 5:8.0.6-3, to upstream's: 8.0.6.
upstream() {
    sed 's/^[0-9]*://; s/-[^-]*$//; s/[+~].*//'
}

newest() {
    tail -n 1
}

# find_source PRODUCT MAJOR.MINOR[+]: sets $source_version to the version of the source package, as Debian writes it, and
# $full to upstream's; or calls `fail` with the reason. With a +, a later version is taken if Debian no longer has this one.
find_source() {
    product=$1
    version=${2%+}
    command -v apt-get >/dev/null 2>&1 || fail "without apt its source cannot be fetched."
    mkdir -p "${apt_home:?}"
    : >"$apt_home/update.log"
    update machine
    # shellcheck disable=SC2086 # one word a release
    write_sources debian deb-src $releases ||
        fail "its source is fetched from Debian's archive, and apt knows no address of that here."
    update debian
    # The newest is last.
    offered=$(apt_with debian apt-cache showsrc --only-source "$product" 2>/dev/null |
        sed -n 's/^Version: //p' | sort -u -V)
    [ -n "$offered" ] || fail "Debian's sources could not be read: $(update_errors | newest)"
    source_version=$(echo "$offered" | grep "^\([0-9]*:\)\{0,1\}$version\." | newest) || true
    if [ -z "$source_version" ] && [ "$2" != "$version" ]; then
        last=$(echo "$offered" | newest)
        if [ "$(printf '%s\n%s\n' "$version" "$(echo "$last" | upstream)" | sort -V | newest)" != "$version" ]; then
            source_version=$last
        fi
    fi
    [ -n "$source_version" ] ||
        fail "of its source Debian has only $(echo "$offered" | upstream | sort -u -V | paste -s -d , - | sed 's/,/, /g')."
    full=$(echo "$source_version" | upstream)
}

# fetch_source DIRECTORY: unpacks the source that was found into DIRECTORY/source; what apt says goes to DIRECTORY/log.
fetch_source() {
    mkdir -p "$1/source"
    (cd "$1" && apt_with debian apt-get -q source --download-only --only-source "$product=$source_version") >"$1/log" 2>&1 ||
        fail "its source could not be downloaded: $(tail -n 1 "$1/log")"
    tar -x -f "$1/$product"_*.orig.tar.* -C "$1/source" --strip-components=1
}

# make_server DIRECTORY TARGET ...: builds targets of the source in DIRECTORY/source, with the bundled libraries, so that the
# programs need only the C library.
make_server() {
    built_in=$1
    shift
    (
        # Pass on nothing of a make that called this script, or the server's make would get its flags and variables. And
        # git must not find dsync's repository, or the server's build would take dsync's commit for its own.
        unset MAKEFLAGS MFLAGS MAKEOVERRIDES MAKELEVEL
        export GIT_CEILING_DIRECTORIES="$built_in/source"
        jobs=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
        make -C "$built_in/source/src" -j "$jobs" BUILD_TLS=no USE_SYSTEMD=no OPTIMIZATION=-O2 "$@"
    ) >"$built_in/log" 2>&1 || {
        tail -n 20 "$built_in/log" >&2
        fail "it does not build (see above)."
    }
}
