#!/bin/sh
# command-pages.sh: writes the pages in docs/commands again, after a change of the table of commands (src/commands).
#
# The table gives the requests of the examples, a server with the built module (`make build`) gives their replies, and
# both give the pages. Recorded replies that are still right stay as they are. Without this script the tests fail and say
# which file is out of date.
set -eu
cd "$(dirname "$0")/.."

: "${DSYNC_TEST_SERVER:=$(sh scripts/server.sh redis)}"
export DSYNC_TEST_SERVER

DSYNC_WRITE_EXAMPLES=1 cargo test --lib examples_file_matches_the_table
DSYNC_WRITE_REPLIES=1 cargo test --test server -- every_example_gets
DSYNC_WRITE_DOCS=1 cargo test --lib pages_match_the_table
