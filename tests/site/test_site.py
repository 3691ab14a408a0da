"""Tests the site that `make docs` builds, as a reader uses it: from files, without a network.

scripts/test-docs.sh runs this file with the folder of the site and a browser. It needs only Python's own library.
"""

import re
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from browser import Browser

# What a reader types, and the place that answers it.
SEARCHES = {
    "ran twice": "docs/operations.html#why-did-the-job-run-twice",
    "429": "docs/recipes/rate-limit.html",
    "CROSSSLOT": "docs/cluster.html",
}
PLOT = "hand-off-latency.svg"
PAGE_OF_PLOT = "docs/scaling.html"


class Page(HTMLParser):
    """The places of a page, where its links lead, and what it loads."""

    def __init__(self, path):
        super().__init__()
        self.places, self.links, self.loaded = set(), [], []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if place := attributes.get("id"):
            self.places.add(place)
        if tag == "a" and "href" in attributes:
            self.links.append(attributes["href"])
        if tag in ("img", "script") and "src" in attributes:
            self.loaded.append(attributes["src"])
        if tag == "link":
            self.loaded.append(attributes["href"])


def dead_links(site):
    """Every link that leads nowhere or out of the site, and every file that is loaded from elsewhere."""
    pages = {path: Page(path) for path in site.rglob("*.html")}
    assert len(pages) > 80, f"{len(pages)} pages"
    for path, page in pages.items():
        for link in page.links + page.loaded:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if link in page.loaded:
                    yield f"{path.relative_to(site)} loads {link}"
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            place = unquote(parts.fragment)
            if not target.is_relative_to(site) or not target.is_file():
                yield f"{path.relative_to(site)}: {link}"
            elif place and target in pages and place not in pages[target].places:
                yield f"{path.relative_to(site)}: {link}, no such place"


def check_search(browser, site, words, answer):
    browser.open((site / "index.html").as_uri())
    browser.value("document.getElementById('mdbook-search-toggle').click()")
    browser.until("document.activeElement.id == 'mdbook-searchbar'", "the search bar")
    browser.type(words)
    first = "document.querySelector('#mdbook-searchresults a')"
    browser.until(f"{first} && document.getElementById('mdbook-searchbar').value == {words!r}", f"a result for {words}")
    found = browser.value("[...document.querySelectorAll('#mdbook-searchresults a')].map(a => a.href)")
    places = [re.sub(r"\?[^#]*", "", link) for link in found[:3]]
    wanted = f"{site.as_uri()}/{answer}"
    at = [place if "#" in answer else place.partition("#")[0] for place in places]
    assert wanted in at, f"{words}: the first results are {places}"
    browser.value(f"document.querySelectorAll('#mdbook-searchresults a')[{at.index(wanted)}].click()")
    page = wanted.partition("#")[0]
    browser.until(f"location.href.startsWith({page!r}) && document.readyState == 'complete'", f"{words}: {page}")
    # The words that were searched are marked on the page.
    text = browser.until("document.querySelector('main').innerText")
    assert all(word.lower() in text.lower() for word in words.split()), f"{page} has not {words}"
    if "#" in answer:
        heading = wanted.partition("#")[2]
        in_sight = "top >= 0 && top < innerHeight"
        browser.until(f"(top => {in_sight})(document.getElementById({heading!r}).getBoundingClientRect().top)", heading)


def brightness(colour):
    return sum(colour) / 3


def check_plot(browser, site, scheme, is_right):
    """The plot has a background for this scheme, as a file and in its page; so has the page."""
    browser.prefer(scheme)
    browser.open(next(site.rglob(PLOT)).as_uri())
    assert is_right(brightness(browser.colour(5, 5))), f"{PLOT} in {scheme}: {browser.colour(5, 5)}"
    browser.open((site / PAGE_OF_PLOT).as_uri())
    picture = f"document.querySelector('img[src$=\"{PLOT}\"]')"
    browser.until(f"{picture}.complete && {picture}.naturalWidth > 0", f"the picture {PLOT}")
    left, top = browser.value(f"(box => [box.left + scrollX, box.top + scrollY])({picture}.getBoundingClientRect())")
    assert is_right(brightness(browser.colour(left + 5, top + 5))), f"{PLOT} in its page in {scheme}"
    assert is_right(brightness(browser.colour(left - 3, top + 5))), f"{PAGE_OF_PLOT} in {scheme}"


def main(site, program):
    site = Path(site).resolve()
    dead = sorted(dead_links(site))
    assert not dead, "\n".join(["dead links:", *dead])
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, Browser(program, folder) as browser:
        for words, answer in SEARCHES.items():
            check_search(browser, site, words, answer)
        check_plot(browser, site, "light", lambda brightness: brightness > 200)
        check_plot(browser, site, "dark", lambda brightness: brightness < 60)
    print("dsync: the site's links, search and plots are right, from files.")


if __name__ == "__main__":
    main(*sys.argv[1:])
