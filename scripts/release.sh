#!/bin/sh
# release.sh: sets $version and SOURCE_DATE_EPOCH for the scripts that make packages, and defines what they share. They read
# this file with `.`.
#
# SOURCE_DATE_EPOCH is the date that all files in a package get, in seconds since 1970. It is that of the newest entry in
# packaging/debian/changelog, unless the caller sets it: so it needs no git, and changes only with a release.

# shellcheck disable=SC2034 # for the scripts that read this file
version=$(sed -n '/^\[workspace.package\]/,/^\[[^w]/ s/^version = "\(.*\)"/\1/p' Cargo.toml)

if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
    SOURCE_DATE_EPOCH=$(date -d "$(sed -n 's/^ -- .*>  //p' packaging/debian/changelog | head -n 1)" +%s)
fi
export SOURCE_DATE_EPOCH

# copy_docs FOLDER: copies the pages and their pictures, and contrib/, into FOLDER, without the programs that test them.
copy_docs() {
    cp README.md SECURITY.md TRACK-RECORD.md RELIABILITY.md "$1/"
    find docs contrib -type f \( -name '*.md' -o -name '*.svg' -o -path 'contrib/*' ! -name '*.py' \) -print0 |
        xargs -0 cp --parents -t "$1"
    printf '\nNames without a link, such as CONTRIBUTING.md, are files of the sources.\n' >>"$1/README.md"
}
