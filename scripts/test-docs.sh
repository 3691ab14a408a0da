#!/bin/sh
# test-docs.sh: builds the site of `make docs`, and tests it in a browser, which browser.sh finds or fetches. What is tested
# is in tests/site/test_site.py.
set -eu
cd "$(dirname "$0")/.."

command -v python3 >/dev/null || sh scripts/need.sh peers
sh scripts/docs.sh >/dev/null
exec python3 tests/site/test_site.py target/docs "$(sh scripts/browser.sh)"
