"""Reads the code of a page.

A block is fenced with three backquotes and the name of its language. What a test needs besides, and a reader does not,
stands in an HTML comment that begins with the same name, before or after the block: stand-ins for the reader's own
functions, and assertions.

A table of two columns has code in the second one if its head is the name of a language. A row is a line of code, and its
parts between backquotes are one statement each. Rows of redis-cli are requests without their replies.
"""

import re
from typing import NamedTuple

_BLOCK = re.compile(
    r"^```(?P<shown>[a-z-]+)\n(?P<code>.*?)^```$|^<!-- (?P<hidden>python|js|go|sh)\n(?P<check>.*?)^-->$", re.M | re.S
)
_TABLE = re.compile(r"^\|[^|\n]+\| (?P<head>redis-cli|Python|Node|Go|shell) \|\n\|[-|]+\|\n(?P<rows>(?:\|.*\n)+)", re.M)
_LANGUAGES = {"redis-cli": "redis-cli", "Python": "python", "Node": "js", "Go": "go", "shell": "sh"}


class Block(NamedTuple):
    language: str
    code: str
    #: The line of the page on which the code begins, from 1.
    line: int


def blocks(page: str) -> list[Block]:
    """Returns the code of a page, shown and hidden, in order."""
    found = []
    for match in _BLOCK.finditer(page):
        language, part = (match["shown"], "code") if match["shown"] else (match["hidden"], "check")
        found.append(Block(language, match[part], _line(page, match.start(part))))
    for match in _TABLE.finditer(page):
        found.append(Block(_LANGUAGES[match["head"]], _code(match), _line(page, match.start("rows"))))
    return sorted(found, key=lambda block: block.line)


def _line(page: str, at: int) -> int:
    return page.count("\n", 0, at) + 1


def _code(table: re.Match[str]) -> str:
    rows = [re.findall(r"`([^`]+)`", row.split("|")[2]) for row in table["rows"].splitlines()]
    if table["head"] == "redis-cli":
        return "".join(f"> {request}\n...\n" for row in rows for request in row)
    return "".join("; ".join(row) + "\n" for row in rows)


def program(found: list[Block], language: str) -> str:
    """Returns all code of a language as one program, in which each line has the number that it has on the page."""
    lines: list[str] = []
    for block in found:
        if block.language == language:
            lines += [""] * (block.line - 1 - len(lines))
            lines += block.code.splitlines()
    return "\n".join(lines) + "\n"
