#!/bin/sh
# test-deb.sh: tests the packages of `make deb` as a user of Debian meets them: installed by apt beside Debian's
# redis-server and valkey-server, loaded by the command line of their services under the restrictions of their units,
# used, and removed again. Their pages have no dead link. The tool shares the name dsync with dovecot-core, whichever comes
# first; a package of that name with dovecot's files, made here, stands in for it.
#
# Everything happens in a copy of this machine's root folder that exists only while the test runs: an overlay in a mount
# namespace, with its changes in memory, and the servers in a network and a process namespace. So no package of the
# machine, no service and no port is touched, and nothing is left whatever happens. Rejected: debootstrap, because it
# downloads a whole system each time and needs a tool that few machines have.
#
# There is no systemd in the copy, so this script does itself what the units ask for and mounts, limits and process
# flags can express: NoExecPaths=, ExecPaths=, ProtectSystem=strict, ReadWritePaths=, PrivateTmp=, ProtectHome=, User=, Group=,
# NoNewPrivileges=, MemoryDenyWriteExecute= (where the kernel has a flag for it) and UMask=. SystemCallFilter= and what
# concerns the kernel, the clock and devices are left out.
#
# Needs root. Without it, or where no namespace can be made, it says so and does nothing, but with CI=true it fails.
# LINTIAN=yes also runs lintian in the copy.
set -eu
cd "$(dirname "$0")/.."

module=/usr/lib/redis/modules/dsync.so

fail() {
    echo "test-deb: $*" >&2
    exit 1
}

# Runs a command in the copy.
in_copy() {
    chroot "$copy" env DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"
}

# Prints the values of a setting in the unit of $service, a line each. A leading - means that the path may be missing.
unit() {
    sed -n "s/^$1=//p" "$copy/lib/systemd/system/$service-server.service" | tr ' ' '\n' | sed 's/^-//; /^$/d'
}

# The first stage: builds the packages, and starts the second stage in namespaces of its own.
build_and_test() {
    if [ "$(id -u)" -ne 0 ] || ! unshare --mount --pid --fork --net true 2>/dev/null; then
        [ "${CI:-}" != true ] || fail 'CI must test the packages, which needs root and namespaces.'
        echo 'test-deb: SKIPPED, because this needs root and the right to make namespaces.' >&2
        return
    fi
    sh scripts/need.sh hosts
    sh scripts/deb.sh
    work=$PWD/target/test-deb
    rm -rf "$work"
    mkdir -p "$work/first"
    trap 'rm -rf "$work"' EXIT
    cp target/dist/*.deb "$work/first"
    # Build again with other habits: the result must be the same.
    (umask 077 && sh scripts/deb.sh >/dev/null)
    for deb in "$work"/first/*.deb; do
        cmp "$deb" "target/dist/${deb##*/}" || fail "${deb##*/} differs when it is built again"
    done
    mkdir "$work/copy"
    unshare --mount --pid --fork --kill-child sh scripts/test-deb.sh in-namespace "$work/copy" "$work/first"
}

# The second stage: makes the copy, and tests in it.
test_in_copy() {
    mount -t proc proc /proc
    mount -t tmpfs -o size=2g,mode=755 tmpfs "$changes"
    mkdir "$changes/upper" "$changes/work" "$copy"
    mount -t overlay -o "lowerdir=/,upperdir=$changes/upper,workdir=$changes/work" overlay "$copy"
    mount --bind /proc "$copy/proc"
    mount --rbind /dev "$copy/dev"
    # In a container these are mounts, which the copy does not have.
    for file in /etc/resolv.conf /etc/hosts; do
        cat "$file" >"$changes/file"
        rm -f "$copy$file"
        cp "$changes/file" "$copy$file"
    done
    # Lets no package start a service: services are started below.
    printf '#!/bin/sh\nexit 101\n' >"$copy/usr/sbin/policy-rc.d"
    chmod 755 "$copy/usr/sbin/policy-rc.d"
    # On a terminal of its own, dpkg would end its lines with carriage returns.
    echo 'Dpkg::Use-Pty "0";' >"$copy/etc/apt/apt.conf.d/99-test-deb"

    install_servers
    list_changes >"$changes/before"
    cp "$debs"/*.deb "$copy/tmp/"
    install_packages
    for service in $services; do
        # The network of the copy is its own from here on, so that the port of the service is free.
        unshare --net sh scripts/test-deb.sh service "$changes" "$service"
    done
    test_shared_name
    remove_packages
    [ "${LINTIAN:-}" != yes ] || check_with_lintian
}

install_servers() {
    # What this machine has of them could have settings of its own.
    for package in redis-server valkey-server dovecot-core dsync dsync-cli; do
        in_copy apt-get -q -y purge "$package" >/dev/null 2>&1 || true
    done
    in_copy apt-get -q update >/dev/null
    services=redis
    if ! in_copy apt-cache show valkey-server >/dev/null 2>&1; then
        # Valkey is in the backports of Debian 12, and in later releases. apt.sh finds their address.
        apt_home=$changes/apt
        # shellcheck source=scripts/apt.sh
        . scripts/apt.sh
        apt_with() {
            shift
            in_copy "$@"
        }
        if [ "$(debian_release)" = bookworm ] && write_sources backports deb bookworm-backports; then
            cp "$apt_home/backports/sources.list" "$copy/etc/apt/sources.list.d/backports-of-test.list"
            in_copy apt-get -q update >/dev/null
        fi
    fi
    if in_copy apt-cache show valkey-server >/dev/null 2>&1; then
        services="$services valkey"
    elif [ "${CI:-}" = true ]; then
        fail 'CI must test on Valkey, which apt does not have here.'
    else
        echo 'test-deb: going on WITHOUT Valkey, which apt does not have here.' >&2
    fi
    # shellcheck disable=SC2046,SC2086 # one word a package
    in_copy apt-get -q -y install --no-install-recommends $(printf '%s-server ' $services) >"$changes/apt.log" 2>&1 ||
        fail "apt could not install the servers: $(tail -n 5 "$changes/apt.log")"
}

# Prints what is in the copy otherwise than on the machine, without logs, caches and the servers' data. A folder that the
# machine has too only shows that something in it has changed for a time.
list_changes() {
    (cd "$changes/upper" && find . ! -path './var/log*' ! -path './var/cache*' ! -path './var/lib/apt*' \
        ! -path './var/lib/dpkg*' ! -path './var/lib/redis*' ! -path './var/lib/valkey*' ! -path './run*' \
        ! -path './tmp*' | LC_ALL=C sort) |
        while read -r path; do
            [ -d "$changes/upper/$path" ] && [ -d "/$path" ] || echo "$path"
        done
}

install_packages() {
    for service in $services; do
        cp "$copy/etc/$service/$service.conf" "$changes/$service.conf"
    done
    in_copy sh -c 'apt-get -q -y install --no-install-recommends /tmp/*.deb' >"$changes/apt.log" 2>&1 ||
        fail "apt could not install the packages: $(tail -n 5 "$changes/apt.log")"
    grep -qx "    loadmodule $module" "$changes/apt.log" ||
        fail "the package does not say how to load the module: $(cat "$changes/apt.log")"
    for service in $services; do
        cmp "$changes/$service.conf" "$copy/etc/$service/$service.conf" || fail 'the package changed a configuration'
    done
    damaged=$(in_copy dpkg --verify dsync dsync-cli)
    [ -z "$damaged" ] || fail "files differ from the package's checksums: $damaged"
    for program in "$module" /usr/bin/dsync-cli; do
        for path in "$PWD" "${CARGO_HOME:-$HOME/.cargo}"; do
            ! grep -aqF "$path" "$copy$program" || fail "$program has a path of the machine that built it: $path"
        done
    done
    # Not in the copy, because containers often install no man pages.
    dpkg-deb --contents "$debs"/dsync-cli_*.deb >"$changes/contents"
    for file in man/man1/dsync-cli.1.gz man/man1/dsync-run.1.gz bash-completion/completions/dsync-cli \
        zsh/vendor-completions/_dsync-cli fish/vendor_completions.d/dsync-cli.fish dsync-cli/_dsync; do
        grep -q " ./usr/share/$file\$" "$changes/contents" || fail "dsync-cli has no $file"
    done
    # For the same reason the pages are unpacked apart.
    dpkg-deb --extract "$debs"/dsync_*.deb "$changes/unpacked"
    docs=$changes/unpacked/usr/share/doc/dsync
    sh scripts/test-links.sh "$docs" || fail 'the installed pages have dead links, see above'
    for file in prometheus/alerts.yml prometheus/alerts_test.yml prometheus/dsync.lua grafana/dsync.json; do
        cmp "contrib/$file" "$docs/contrib/$file" || fail "dsync has no contrib/$file, or another"
    done
}

# The third stage, in a network of its own: runs the service first with a module that its unit forbids, then with ours.
test_service() {
    ip link set lo up
    user=$(unit User)
    in_copy install -d -o "$user" -g "$(unit Group)" -m 2755 "/run/$(unit RuntimeDirectory)"
    conf=$copy/etc/$service/$service.conf
    log=$copy/var/log/$service/$service-server.log

    # If the service can load from here, then this test does not restrict it as its unit does.
    install -D -m 755 "$copy$module" "$copy/var/lib/$service/dsync-of-test.so"
    echo "loadmodule /var/lib/$service/dsync-of-test.so" >>"$conf"
    ! run_service || fail "$service loaded a module from its data folder, which its unit forbids"
    grep -q 'failed to map segment' "$log" || fail "$service failed for another reason: $(tail -n 5 "$log")"
    sed -i '/dsync-of-test/d' "$conf"
    rm "$copy/var/lib/$service/dsync-of-test.so"

    # The line as the package has printed it.
    grep -x "    loadmodule $module" "$changes/apt.log" >>"$conf"
    run_service || fail "$service does not start with the module: $(tail -n 20 "$log")"
    got=$(in_copy "$service-cli" DLOCK.ACQUIRE trial:1 PX 60000 TOKEN trial-token | head -n 1)
    [ "$got" = trial-token ] || fail "DLOCK.ACQUIRE answered $got"
    got=$(in_copy dsync --url redis://127.0.0.1:6379 run --lock trial:2 -- echo worked)
    [ "$got" = worked ] || fail "dsync run printed $got"
    in_copy "$service-cli" SHUTDOWN NOSAVE
    wait "$server" || fail "$service did not stop well: $(tail -n 5 "$log")"
    echo "test-deb: $(in_copy "$service-server" --version | cut -d ' ' -f 1-3) loads the module as a service and grants a lock."
}

# Starts the service as $server, and waits until it answers. Fails if the service ends instead.
run_service() {
    unshare --mount sh scripts/test-deb.sh confined "$changes" "$service" &
    server=$!
    tries=0
    until [ "$(in_copy "$service-cli" PING 2>/dev/null)" = PONG ]; do
        kill -0 "$server" 2>/dev/null || return 1
        tries=$((tries + 1))
        [ "$tries" -lt 300 ] || fail "$service neither serves nor ends: $(tail -n 5 "$log")"
        sleep 0.1
    done
}

# The fourth stage, in the service's own mount namespace: restricts it and becomes the service.
become_service() {
    start=$(sed -n 's/^ExecStart=//p' "$copy/lib/systemd/system/$service-server.service")
    user=$(in_copy id -u "$(unit User)")
    group=$(in_copy id -g "$(unit Group)")
    exec_paths=''
    for path in $(unit ExecPaths); do
        exec_paths="$exec_paths $(in_copy readlink -f "$path")"
    done
    write_paths=''
    for path in $(unit ReadWritePaths) $(unit ReadWriteDirectories) "/run/$(unit RuntimeDirectory)"; do
        write_paths="$write_paths $(in_copy readlink -f "$path")"
    done

    if [ "$(unit NoExecPaths)" != / ] || [ "$(unit ProtectSystem)" != strict ]; then
        fail "the unit of $service has changed"
    fi
    remount "$copy" ro,noexec
    for path in $exec_paths; do remount "$copy$path" ro,exec; done
    for path in $write_paths; do remount "$copy$path" rw,noexec; done
    for path in /tmp /var/tmp; do mount -t tmpfs -o noexec,mode=1777 tmpfs "$copy$path"; done
    for path in /home /root; do mount -t tmpfs -o ro,mode=000 tmpfs "$copy$path"; done
    umask "$(unit UMask)"

    # Nothing in the copy may be executed any more but the service, so programs of the machine do the rest.
    # shellcheck disable=SC2086 # systemd also splits the command line at spaces
    exec perl -e '
        # PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN: an older kernel does not know it.
        my %prctl = ("x86_64" => 157, "aarch64" => 167);
        my $machine = `uname -m`;
        chomp $machine;
        syscall($prctl{$machine}, 65, 1, 0, 0, 0) if $prctl{$machine};
        exec @ARGV or die "$ARGV[0]: $!";
    ' setpriv --no-new-privs chroot --userspec="$user:$group" --groups="$group" "$copy" $start </dev/null >/dev/null
}

# remount PATH FLAGS: makes PATH a mount of its own, with these flags. What is mounted below it stays as it is.
remount() {
    mount --rbind "$1" "$1"
    mount -o "remount,bind,nosuid,nodev,$2" "$1"
}

# The tool and dovecot-core, which has a program and a man page dsync, are installed and removed beside each other.
test_shared_name() {
    tool=$(in_copy dsync-cli --version)
    expect_dsync "$tool" 'without dovecot-core'
    # As in dovecot-core, the program is a link.
    mail=$changes/dovecot-core
    mkdir -p "$mail/DEBIAN" "$mail/usr/bin" "$mail/usr/share/man/man1" "$copy/tmp/mail"
    printf '%s\n' 'Package: dovecot-core' 'Version: 1' 'Architecture: all' 'Maintainer: A Test <test@dsync.example>' \
        'Description: stands in for dovecot-core' >"$mail/DEBIAN/control"
    printf '#!/bin/sh\necho doveadm\n' >"$mail/usr/bin/doveadm"
    chmod 755 "$mail/usr/bin/doveadm"
    ln -s doveadm "$mail/usr/bin/dsync"
    echo 'a page' | gzip -9n >"$mail/usr/share/man/man1/dsync.1.gz"
    dpkg-deb --root-owner-group --build "$mail" "$copy/tmp/mail/dovecot-core.deb" >/dev/null

    packages --install /tmp/mail/dovecot-core.deb
    expect_dsync doveadm 'after dovecot-core'
    [ "$(in_copy dsync-cli --version)" = "$tool" ] || fail 'dsync-cli does not work beside dovecot-core'
    left=$(cd "$copy/usr/share" && find bash-completion fish zsh -name 'dsync' -o -name 'dsync.fish' -o -name _dsync)
    [ -z "$left" ] || fail "the tool completes dovecot's dsync: $left"
    packages --purge dovecot-core
    expect_dsync "$tool" 'when dovecot-core is removed'
    packages --purge dsync-cli
    ! in_copy sh -c 'command -v dsync' || fail 'the removed tool has left its name'

    packages --install /tmp/mail/dovecot-core.deb
    in_copy sh -c 'dpkg --install /tmp/dsync-cli_*.deb' >"$changes/dpkg.log" 2>&1 ||
        fail "dsync-cli cannot be installed after dovecot-core: $(cat "$changes/dpkg.log")"
    grep -q 'so the tool is dsync-cli' "$changes/dpkg.log" || fail 'the package does not say how the tool is named'
    expect_dsync doveadm 'before dsync-cli'
    packages --purge dsync-cli
    expect_dsync doveadm 'when dsync-cli is removed'
    damaged=$(in_copy dpkg --verify dovecot-core)
    [ -z "$damaged" ] || fail "dsync-cli changed files of dovecot-core: $damaged"
    packages --purge dovecot-core

    # An older version, in whose package the program itself is dsync, is upgraded.
    in_copy sh -c 'dpkg-deb --raw-extract /tmp/dsync-cli_*.deb /tmp/mail/old'
    old=$copy/tmp/mail/old
    mv "$old/usr/bin/dsync-cli" "$old/usr/bin/dsync"
    rm "$old/DEBIAN/postinst" "$old/DEBIAN/prerm" "$old/DEBIAN/triggers"
    sed -i 's/^Version: .*/Version: 0.1/' "$old/DEBIAN/control"
    dpkg-deb --root-owner-group --build "$old" "$copy/tmp/mail/old.deb" >/dev/null
    packages --install /tmp/mail/old.deb
    in_copy sh -c 'dpkg --install /tmp/dsync-cli_*.deb' >/dev/null
    expect_dsync "$tool" 'after an upgrade'
    [ -L "$copy/usr/bin/dsync" ] || fail 'after an upgrade, dsync is not the link'
    rm -r "$copy/tmp/mail"
    echo 'test-deb: the tool and dovecot-core can be installed in either order, and each keeps its program.'
}

# packages ARGUMENT ...: calls dpkg.
packages() {
    in_copy dpkg "$@" >"$changes/dpkg.log" 2>&1 || fail "dpkg $*: $(cat "$changes/dpkg.log")"
}

# expect_dsync TEXT WHEN: dsync prints the text.
expect_dsync() {
    got=$(in_copy dsync --version 2>&1) || true
    [ "$got" = "$1" ] || fail "$2: dsync printed $got instead of $1"
}

check_with_lintian() {
    in_copy apt-get -q -y install --no-install-recommends lintian >"$changes/apt.log" 2>&1 ||
        fail "apt could not install lintian: $(tail -n 5 "$changes/apt.log")"
    # The one tag asks for a number in Debian's own list of wanted packages. The other finds the Apache licence among those
    # of the crates, which are there as their authors ship them.
    in_copy sh -c 'lintian --allow-root --fail-on error,warning \
        --suppress-tags initial-upload-closes-no-bugs,copyright-file-contains-full-apache-2-license /tmp/*.deb'
}

remove_packages() {
    in_copy apt-get -q -y purge dsync dsync-cli >"$changes/apt.log" 2>&1 || fail "removal failed: $(cat "$changes/apt.log")"
    for service in $services; do
        grep -q "/etc/$service/$service.conf still loads" "$changes/apt.log" ||
            fail "removal does not warn that $service.conf still loads the module: $(cat "$changes/apt.log")"
    done
    way_out=$(sed -n 's|^ */usr/share/doc/dsync/\(docs/.*\.md\)$|\1|p' "$changes/apt.log")
    [ -n "$way_out" ] && [ -f "$way_out" ] || fail "removal does not name the page with the way out: $(cat "$changes/apt.log")"
    list_changes >"$changes/after"
    diff "$changes/before" "$changes/after" || fail 'the packages left or took files, see above'
    echo 'test-deb: the packages are removed and nothing is left.'
}

changes=${2:-}
copy=$changes/root
case ${1:-} in
'') build_and_test ;;
in-namespace)
    debs=$3
    test_in_copy
    ;;
service)
    service=$3
    test_service
    ;;
confined)
    service=$3
    become_service
    ;;
esac
