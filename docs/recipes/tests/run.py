"""Runs every code block of the recipes against a server of its own: redis-cli sessions are compared reply by reply, and the
Python and Node blocks of a page are one program each, with the checks that the page hides.

The arguments are the pages to run; without any, all. The programs connect to the default port, in place of which they
get that of the server.
"""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from blocks import Block, blocks, program
from server import Server
from session import Connection, Mismatch, run

RECIPES = Path(__file__).resolve().parent.parent
#: The languages of blocks that are programs: the file's name, and the command that runs it.
PROGRAMS = {"python": ("recipe.py", [sys.executable, "-W", "error"]), "js": ("recipe.mjs", ["node", "--unhandled-rejections=strict"])}
#: Blocks that are not run.
SHOWN_ONLY = {"text", "diff"}
#: Every recipe has all of these.
EXPECTED = {"redis-cli", "python", "js"}
WITHIN = 60


def failures_of(page: Path, port: int) -> list[str]:
    found = blocks(page.read_text(encoding="utf-8"))
    languages = {block.language for block in found}
    failures = [f"{page.name}: no block of {language}" for language in sorted(EXPECTED - languages)]
    failures += [f"{page.name}: {language} is not run" for language in sorted(languages - EXPECTED - SHOWN_ONLY)]
    for block in found:
        if block.language == "redis-cli":
            failures += session_failures(page, block, port)
    for language in PROGRAMS:
        failures += program_failures(page, program(found, language), language, port)
    return failures


def empty(port: int) -> None:
    connection = Connection(port)
    assert connection.ask("FLUSHALL") == "OK"
    connection.close()


def session_failures(page: Path, block: Block, port: int) -> list[str]:
    empty(port)
    try:
        run(block.code, port)
    except Mismatch as mismatch:
        return [f"{page.name}:{block.line}: {mismatch}"]
    return []


def program_failures(page: Path, code: str, language: str, port: int) -> list[str]:
    empty(port)
    code = code.replace("redis.Redis(", f"redis.Redis(port={port}, ").replace("new Redis(", f"new Redis({port}")
    name, command = PROGRAMS[language]
    # Beside the packages: Node looks for them in the folders above the program.
    with tempfile.TemporaryDirectory(dir=os.environ["DSYNC_RECIPES_HOME"]) as folder:
        path = Path(folder) / name
        path.write_text(code, encoding="utf-8")
        try:
            done = subprocess.run([*command, path], capture_output=True, text=True, timeout=WITHIN, cwd=folder)
        except subprocess.TimeoutExpired as late:
            return [f"{page.name}: the {language} blocks take longer than {WITHIN} s\n{late.stdout!r}\n{late.stderr!r}"]
    if done.returncode == 0:
        return []
    return [f"{page.name}: the {language} blocks fail (line numbers are those of the page)\n{done.stdout}{done.stderr}"]


def main(names: list[str]) -> int:
    pages = [Path(name).resolve() for name in names] or sorted(RECIPES.glob("*.md"))
    failures = []
    # As an exception, so that the server ends with this process.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    with Server() as server:
        for page in pages:
            if page.name == "README.md":
                continue
            found = failures_of(page, server.port)
            print(f"{'FAILED' if found else 'ok    '} {page.name}", flush=True)
            failures += found
    for failure in failures:
        print(f"\n{failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
