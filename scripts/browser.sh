#!/bin/sh
# browser.sh: prints the path of a Chromium that shows no window. If that is impossible, fails and says why.
#
# It uses chromium-headless-shell if it is on PATH. Otherwise it unpacks Debian's under target/browser, with a font and the
# libraries that the machine lacks. That needs no root rights, installs no package and changes no configuration, and
# `make clean` removes everything.
set -eu

if command -v chromium-headless-shell 2>/dev/null; then
    exit 0
fi

scripts=$(cd "$(dirname "$0")" && pwd)
home=$(dirname "$scripts")/target/browser
browser=$home/chromium-headless-shell
if [ -x "$browser" ]; then
    echo "$browser"
    exit 0
fi

fail() {
    echo "dsync: no browser for the tests here: $1" >&2
    exit 1
}

if ! command -v apt-get >/dev/null 2>&1 || ! command -v dpkg >/dev/null 2>&1; then
    fail "chromium-headless-shell is not on PATH, and without apt this cannot fetch it."
fi
echo "dsync: unpacking Debian's chromium-headless-shell under target/browser (nothing is installed) ..." >&2

# Unpack in a directory aside, and move it into place when it is complete, so that an interrupted run leaves nothing
# half-done.
work=$home.work
rm -rf "$work" "$home"
mkdir -p "$work/apt"
apt_home=$work/apt
# shellcheck source=scripts/apt.sh
. "$scripts/apt.sh"
update machine
# shellcheck disable=SC2046 # one word a package
unpack machine chromium-headless-shell chromium-common fonts-dejavu-core \
    $(uninstalled_library_packages machine chromium-headless-shell) || fail "apt could not download it:
$(update_errors)"
program=usr/lib/chromium/chromium-headless-shell
missing=$(missing_libraries "$work/root/$program")
[ -z "$missing" ] || fail "it lacks libraries: $missing"

# Without a font it ends at once, and a machine without a screen has none.
cat >"$work/fonts.conf" <<END
<?xml version="1.0"?>
<fontconfig><dir>$home/root/usr/share/fonts</dir><cachedir>$home/fonts</cachedir></fontconfig>
END
cat >"$work/chromium-headless-shell" <<END
#!/bin/sh
export LD_LIBRARY_PATH='$(library_path | sed "s|$work|$home|g")' FONTCONFIG_FILE='$home/fonts.conf'
exec '$home/root/$program' "\$@"
END
chmod 755 "$work/chromium-headless-shell"
rm -rf "$work/apt" "$work/debs"
mv "$work" "$home"
"$browser" --version >/dev/null || fail "it was unpacked and does not run."
echo "$browser"
