#!/bin/sh
# need.sh PURPOSE ...: makes sure that the tools for a purpose are on this machine: `build` to build dsync, `cli` redis-cli,
# `count` to count instructions, `deb` to build Debian packages, `hosts` the tests with several hosts, `images` to build
# container images, `make` to build servers from their sources, `peers` to install the lock libraries that the benchmark
# compares with, `tcl` to run the servers' own tests.
#
# Installs only what is missing, with apt, and says what and why before it does. Starts no service: the package
# redis-tools has redis-cli (and the libraries that Debian's servers need) but no service. That is in redis-server,
# which is never installed. If it cannot install, `build`, `deb` and `make` fail with a list of packages for the user.
# `cli` does not fail, because scripts/server.sh fetches a redis-cli without root rights. `hosts` and `peers` do not fail either,
# because test-settings.sh finds out whether such tests can run, and bench-peers.sh which libraries there are.
set -eu

missing=''
reasons=''

# want PACKAGES REASON: notes packages to install.
want() {
    missing="$missing $1"
    reasons="$reasons  $1: $2
"
}

has_c_compiler() {
    command -v cc >/dev/null 2>&1 && echo '#include <stdio.h>' | cc -E - >/dev/null 2>&1
}

has_make() {
    command -v make >/dev/null 2>&1 && command -v g++ >/dev/null 2>&1
}

has_deb_tools() {
    command -v dpkg-shlibdeps >/dev/null 2>&1 && command -v dpkg-gencontrol >/dev/null 2>&1
}

has_venv() {
    python3 -c 'import venv, ensurepip' >/dev/null 2>&1
}

has_npm() {
    command -v node >/dev/null 2>&1 && command -v npm >/dev/null 2>&1
}

# Looks for the library and for the compiler's own headers (such as stddef.h), which another package has.
has_libclang() {
    [ -z "${LIBCLANG_PATH:-}" ] || return 0
    any_exists /usr/lib/llvm-*/lib/libclang*.so* /usr/lib/*-linux-gnu*/libclang*.so* \
        /usr/lib64/libclang*.so* /usr/lib/libclang*.so* /usr/local/lib/libclang*.so* &&
        any_exists /usr/lib/llvm-*/lib/clang/*/include/stddef.h /usr/lib/clang/*/include/stddef.h \
            /usr/lib64/clang/*/include/stddef.h /usr/local/lib/clang/*/include/stddef.h
}

any_exists() {
    for path in "$@"; do
        [ ! -e "$path" ] || return 0
    done
    return 1
}

# Runs a command as root, or fails if that is impossible. Without a terminal sudo must not ask for a password.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif ! command -v sudo >/dev/null 2>&1; then
        return 1
    elif [ -t 0 ]; then
        sudo "$@"
    else
        sudo -n "$@"
    fi
}

install_missing() {
    command -v apt-get >/dev/null 2>&1 || return 1
    # shellcheck disable=SC2086 # one word a package
    as_root env DEBIAN_FRONTEND=noninteractive sh -c \
        'apt-get update -q && apt-get install -q -y --no-install-recommends "$@" </dev/null' \
        sh $missing >&2
}

wants_build=''
wants_make=''
wants_deb=''
for need in "$@"; do
    case $need in
    build)
        wants_build=yes
        # First, so that nothing is installed in vain.
        oldest=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$(dirname "$0")/../Cargo.toml")
        rust=''
        ! command -v cargo >/dev/null 2>&1 || rust=$(rustc --version | cut -d ' ' -f 2)
        if ! printf '%s\n' "$oldest" "$rust" | sort -C -V; then
            echo "dsync: this needs Rust $oldest or newer, and PATH has ${rust:-none}. Install it with rustup, then try again." >&2
            exit 1
        fi
        has_c_compiler || want 'gcc libc6-dev' 'a C compiler, to link, and to read the header of the module API'
        has_libclang || want 'libclang-dev' 'libclang, which bindgen needs to read the header of the module API'
        ;;
    cli)
        command -v redis-cli >/dev/null 2>&1 || command -v valkey-cli >/dev/null 2>&1 ||
            [ -x "$(dirname "$0")/../target/servers/redis/redis-cli" ] ||
            want 'redis-tools' 'redis-cli, and the libraries of the servers (it starts no service)'
        ;;
    count)
        command -v valgrind >/dev/null 2>&1 ||
            want 'valgrind' 'valgrind, whose callgrind counts the instructions of a server'
        ;;
    deb)
        wants_deb=yes
        has_deb_tools || want 'dpkg-dev' 'dpkg-shlibdeps and dpkg-gencontrol, to build Debian packages'
        ;;
    hosts)
        command -v ip >/dev/null 2>&1 || want 'iproute2' 'ip, with which tests connect network namespaces and cut them off'
        ;;
    images)
        command -v buildah >/dev/null 2>&1 || want 'buildah crun' 'buildah, to build container images without a daemon'
        command -v debootstrap >/dev/null 2>&1 || want 'debootstrap' 'debootstrap, which makes a small Debian for them'
        ;;
    make)
        wants_make=yes
        has_c_compiler || want 'gcc libc6-dev' 'a C compiler, to build servers from their sources'
        has_make || want 'make g++' 'make and a C++ compiler, to build servers from their sources'
        ;;
    peers)
        has_venv || want 'python3 python3-venv' 'Python, with a place of its own for lock libraries'
        has_npm || want 'nodejs npm' 'Node.js and npm, for lock libraries in JavaScript'
        ;;
    tcl)
        command -v tclsh >/dev/null 2>&1 || want 'tcl' 'tclsh, in which the servers'"'"' own tests are written'
        ;;
    *)
        echo "usage: need.sh [build] [cli] [count] [deb] [hosts] [images] [make] [peers] [tcl]" >&2
        exit 2
        ;;
    esac
done

[ -n "$missing" ] || exit 0

printf 'dsync: these are missing and will be installed with apt now:\n%s' "$reasons" >&2
if install_missing; then
    exit 0
fi
printf 'dsync: they could not be installed (no apt, no network, or neither root nor sudo).\n' >&2
# Fail only if the build itself lacks something, not if only `cli` or `hosts` do.
if { [ -n "$wants_build" ] && ! { has_c_compiler && has_libclang; }; } ||
    { [ -n "$wants_make" ] && ! { has_c_compiler && has_make; }; } ||
    { [ -n "$wants_deb" ] && ! has_deb_tools; }; then
    printf 'Please install these packages (the names are those of Debian and Ubuntu), then try again:\n   %s\n' "$missing" >&2
    exit 1
fi
