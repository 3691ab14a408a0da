#!/bin/sh
# deb.sh: builds the Debian packages into target/dist. `make deb` calls it.
#
#     dsync      the module, in the folder that Debian's services may load from; the example configuration; the docs;
#                contrib/ with the alerts, the dashboard and the exporter's script, in /usr/share/doc/dsync/contrib
#     dsync-cli  the command-line tool with its man pages and completions
#
# They are two packages, because the module belongs on the hosts with a server and the tool on those with the jobs, and
# because dovecot-core has a /usr/bin/dsync too: whoever runs both a mail server and Redis can still install the module.
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
    gzip -9n man/man1/*.1
    # Where Debian's zsh looks for what packages bring.
    mkdir -p zsh/vendor-completions
    mv zsh/site-functions/_dsync zsh/vendor-completions/
    rmdir zsh/site-functions
)
add_docs dsync-cli cli/Cargo.toml
pack dsync-cli /usr/bin/dsync
