#!/usr/bin/env python3
"""Makes the first inputs of the fuzz targets from the golden files: `seeds.py CORPUS`.

For each key of each AOF there is one input of `changes`, with all that was written for the key; and two of `saved`, for a
primary and a replica, with the strings of its rewritten state. For each command and each word that the pages of the
commands name there is one input of `requests`.
"""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path
from typing import Dict, Iterator, List

ROOT = Path(__file__).resolve().parents[2]
GOLDEN, PAGES = ROOT / "tests" / "golden", ROOT / "docs" / "commands"
#: As many commands as there are at most.
COMMANDS = 48
#: At the end of each packed string.
CHECK_LEN = 4
FAMILY = 0x7F


def commands(aof: bytes) -> Iterator[List[bytes]]:
    while aof.startswith(b"*"):
        count, aof = aof[1:].split(b"\r\n", 1)
        words = []
        for _ in range(int(count)):
            length, aof = aof[1:].split(b"\r\n", 1)
            words.append(aof[: int(length)])
            aof = aof[int(length) + 2 :]
        yield words


def strings_of_keys(file: Path) -> Dict[bytes, List[bytes]]:
    keys: Dict[bytes, List[bytes]] = {}
    for words in commands(file.read_bytes()):
        if words[0].upper() == b"DSYN":
            keys.setdefault(words[1], []).append(words[2][:-CHECK_LEN])
    return keys


def joined(strings: List[bytes]) -> bytes:
    return b"".join(len(string).to_bytes(2, "little") + string for string in strings)


def write(corpus: Path, target: str, seed: bytes) -> None:
    directory = corpus / target
    directory.mkdir(parents=True, exist_ok=True)
    (directory / hashlib.sha1(seed).hexdigest()).write_bytes(seed)


def main() -> None:
    corpus = Path(sys.argv[1])
    for file in sorted(GOLDEN.glob("*/aof/*.aof")):
        for strings in strings_of_keys(file).values():
            write(corpus, "changes", joined(strings))
            if ".base." in file.name:
                family = strings[0][1] & FAMILY
                for choice in (family, family | 4):
                    write(corpus, "saved", bytes([choice]) + joined(strings))
    grammars = "".join(page.read_text().split("```")[1] for page in PAGES.glob("*.*.md"))
    for word in sorted(set(re.findall(r"(?<![.\w])[A-Z]+(?![.\w])", grammars))):
        for number in range(COMMANDS):
            write(corpus, "requests", b"%ckey token %s 5" % (number, word.encode()))


if __name__ == "__main__":
    main()
