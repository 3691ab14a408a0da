"""Reads the code blocks of a page.

A block is fenced with three backquotes and the name of its language. What a test needs besides, and a reader does not,
stands in an HTML comment that begins with the same name, before or after the block: stand-ins for the reader's own
functions, and assertions.
"""

import re
from typing import NamedTuple

_BLOCK = re.compile(r"^```(?P<shown>[a-z-]+)\n(?P<code>.*?)^```$|^<!-- (?P<hidden>python|js)\n(?P<check>.*?)^-->$", re.M | re.S)


class Block(NamedTuple):
    language: str
    code: str
    #: The line of the page on which the code begins, from 1.
    line: int


def blocks(page: str) -> list[Block]:
    """Returns the blocks of a page, shown and hidden, in order."""
    found = []
    for match in _BLOCK.finditer(page):
        language, part = (match["shown"], "code") if match["shown"] else (match["hidden"], "check")
        line = page.count("\n", 0, match.start(part)) + 1
        found.append(Block(language, match[part], line))
    return found


def program(found: list[Block], language: str) -> str:
    """Returns all code of a language as one program, in which each line has the number that it has on the page."""
    lines: list[str] = []
    for block in found:
        if block.language == language:
            lines += [""] * (block.line - 1 - len(lines))
            lines += block.code.splitlines()
    return "\n".join(lines) + "\n"
