#!/bin/sh
# notices.sh MANIFEST: prints the licences of all crates that are linked into what this manifest builds. Packages must
# contain them, because most of these licences ask that their text goes with every copy.
#
# The texts come from the crates' sources, which cargo has downloaded to build them. Where a crate may be used under MIT or
# another licence, only MIT is printed, which is enough; otherwise every file of the crate that looks like a licence.
# (cargo-about does the same with templates and takes some minutes to build.)
set -eu

manifest=${1:?'usage: notices.sh MANIFEST'}
sources=${CARGO_HOME:-$HOME/.cargo}/registry/src

# What runs only while it is built (build scripts, procedural macros) is not linked.
tree=$(cargo tree --locked --manifest-path "$manifest" --edges normal,no-proc-macro --prefix none --no-dedupe \
    --format '{p}|{l}')

# Prints "name version|licence" for each crate of the registry. The crates of this project have a path behind the version.
crates() {
    echo "$tree" | grep -v ' (/' | sed 's/ v/ /' | LC_ALL=C sort -u
}

# Prints the files of the folder $1 that have the text of the licence $2.
texts() {
    case $2 in
    *AND*) ;;
    *MIT*)
        for file in "$1"/LICENSE-MIT*; do
            if [ -f "$file" ]; then
                echo "$file"
                return
            fi
        done
        ;;
    esac
    find "$1" -maxdepth 1 -type f \( -iname 'licen[cs]e*' -o -iname 'copying*' -o -iname 'notice*' \) | LC_ALL=C sort
}

crates | while IFS='|' read -r crate licence; do
    folder=$(find "$sources" -maxdepth 2 -type d -name "$(echo "$crate" | tr ' ' -)" | head -n 1)
    if [ -z "$folder" ]; then
        echo "notices.sh: the sources of $crate are not in $sources" >&2
        exit 1
    fi
    printf '\n---- %s (%s)\n\n' "$crate" "$licence"
    files=$(texts "$folder" "$licence")
    if [ -z "$files" ]; then
        echo 'The crate names this licence and comes without a copy of it.'
        continue
    fi
    echo "$files" | while read -r file; do
        cat "$file"
        echo
    done
done
