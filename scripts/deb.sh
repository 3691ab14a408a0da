#!/bin/sh
# deb.sh: builds the Debian packages into target/dist. `make deb` calls it.
#
#     dsync      the module, in the folder that Debian's services may load from; the example configuration; the docs;
#                contrib/ with the alerts, the dashboard and the exporter's script, in /usr/share/doc/dsync/contrib
#     dsync-cli  the command-line tool with its man pages and completions, also under the name dsync
#
# They are two packages, because the module belongs on the hosts with a server and the tool on those with the jobs.
#
# dovecot-core has a program, a man page and a command dsync too, and Debian's policy (10.1) lets two packages neither
# have the same file nor conflict for that reason. So the tool's files are named dsync-cli, and its postinst links the
# name dsync to them where no package has it (packaging/debian/dsync-cli.names). dpkg replaces these links when
# dovecot-core is installed later, and a trigger brings them back when it is removed. Rejected: update-alternatives, which
# is for programs that do the same, and would replace dovecot's dsync, as that is a link; a diversion, which would take
# away the other package's program.
#
# The packages are put together with dpkg-dev alone: dpkg-shlibdeps finds the libraries they depend on, dpkg-gencontrol
# fills in the rest of packaging/debian/control, dpkg-deb packs. Rejected: cargo-deb, because it takes minutes to build
# and knows neither two workspaces nor files from other scripts; debhelper, because what it does beyond this is for
# packages that Debian's own machines build, with all crates as Debian packages.
#
# The same sources and compiler give the same bytes: stage.sh sees to it for the programs, and dpkg-deb takes all times
# from SOURCE_DATE_EPOCH, which is the date of the newest entry in packaging/debian/changelog unless the caller sets it.
set -eu
cd "$(dirname "$0")/.."

sh scripts/need.sh deb
# shellcheck source=scripts/release.sh
. scripts/release.sh

debian=packaging/debian
revision=$(dpkg-parsechangelog -l "$debian/changelog" -S Version)
case $revision in
"$version"-*) ;;
*)
    echo "make deb: $debian/changelog begins with version $revision, but Cargo.toml has $version. Add an entry." >&2
    exit 1
    ;;
esac

work=$PWD/target/package/deb
rm -rf "$work"
# dpkg-shlibdeps looks for debian/control in the folder where it runs.
mkdir -p "$work/debian" target/dist
cp "$debian/control" "$work/debian/"

# add_docs PACKAGE MANIFEST: installs what every package has in /usr/share/doc.
add_docs() {
    docs=$work/$1/usr/share/doc/$1
    mkdir -p "$docs"
    sed -e '/@MIT@/{r LICENSE-MIT' -e 'd}' "$debian/copyright" >"$docs/copyright"
    sh scripts/notices.sh "$2" >>"$docs/copyright"
    gzip -9nc "$debian/changelog" >"$docs/changelog.Debian.gz"
    gzip -9nc CHANGELOG.md >"$docs/changelog.gz"
}

# pack PACKAGE PROGRAM: packs the folder of the package. PROGRAM is its only file that is linked with libraries.
pack() {
    root=$work/$1
    mkdir -p "$root/DEBIAN"
    for script in preinst postinst prerm postrm; do
        if [ -f "$debian/$1.$script" ]; then
            install -m 755 "$debian/$1.$script" "$root/DEBIAN/$script"
        fi
    done
    if [ -f "$debian/$1.triggers" ]; then
        install -m 644 "$debian/$1.triggers" "$root/DEBIAN/triggers"
    fi
    (cd "$root" && find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
    (cd "$work" && dpkg-shlibdeps -T"$1.substvars" -e"$1$2")
    dpkg-gencontrol -c"$debian/control" -l"$debian/changelog" -T"$work/$1.substvars" -f"$work/files" -P"$root" -p"$1"
    # dpkg-deb takes modes from the files, and times later than SOURCE_DATE_EPOCH only.
    chmod -R u=rwX,go=rX "$root"
    find "$root" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
    dpkg-deb --root-owner-group -Zxz --build "$root" target/dist
}

sh scripts/stage.sh module "$work/dsync"
add_docs dsync Cargo.toml
copy_docs "$docs"
mkdir "$docs/examples"
sed 's|^# loadmodule /path/to/.*|loadmodule /usr/lib/redis/modules/dsync.so|' redis.conf.example >"$docs/examples/redis.conf.example"
perl scripts/relink.pl "$docs" redis.conf.example=examples/redis.conf.example CHANGELOG.md=changelog.gz \
    LICENSE-MIT=copyright LICENSE-APACHE=copyright
pack dsync /usr/lib/redis/modules/dsync.so

sh scripts/stage.sh tool "$work/dsync-cli"
(
    cd "$work/dsync-cli/usr/share"
    mv ../bin/dsync ../bin/dsync-cli
    mv man/man1/dsync.1 man/man1/dsync-cli.1
    gzip -9n man/man1/*.1
    # The completions are for both names. bash and fish look for a file with the name of the command; zsh reads from each
    # file which command it is for, so it has two, in the folder where Debian's zsh looks for what packages bring.
    mv bash-completion/completions/dsync bash-completion/completions/dsync-cli
    sed -i 's/ -o default dsync$/& dsync-cli/' bash-completion/completions/dsync-cli
    mv fish/vendor_completions.d/dsync.fish fish/vendor_completions.d/dsync-cli.fish
    echo 'complete -c dsync-cli -w dsync' >>fish/vendor_completions.d/dsync-cli.fish
    mkdir -p dsync-cli zsh/vendor-completions
    mv zsh/site-functions/_dsync dsync-cli/
    rmdir zsh/site-functions
    sed -e '1s/dsync/dsync-cli/' -e 's/= "_dsync" /= "_dsync-cli" /' dsync-cli/_dsync >zsh/vendor-completions/_dsync-cli
)
install -m 644 "$debian/dsync-cli.names" "$work/dsync-cli/usr/share/dsync-cli/names"
add_docs dsync-cli cli/Cargo.toml
pack dsync-cli /usr/bin/dsync-cli
