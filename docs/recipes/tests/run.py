"""Runs all code of the recipes and of docs/coming-from.md against a server of its own: redis-cli sessions are compared
reply by reply, and the Python, Node, Go and shell code of a page is one program each, with the checks that the page
hides.

The arguments are the pages to run; without any, all. The programs connect to the default port, in place of which they
get that of the server; `dsync` finds it in REDIS_URL.
"""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import golang
from blocks import Block, blocks, program
from server import Server
from session import Connection, Mismatch, run

RECIPES = Path(__file__).resolve().parent.parent
PAGES = [page for page in sorted(RECIPES.glob("*.md")) if page.name != "README.md"] + [RECIPES.parent / "coming-from.md"]
#: The languages of programs: the file's name, and the command that runs it.
PROGRAMS = {
    "python": ("recipe.py", [sys.executable, "-W", "error"]),
    "js": ("recipe.mjs", ["node", "--unhandled-rejections=strict"]),
    "sh": ("recipe.sh", ["sh", "-eu"]),
}
#: What the line of a page is called if its code fails.
LINES = "line numbers are those of the page"
#: Blocks that are not run.
SHOWN_ONLY = {"text", "diff"}
#: Every page has all of these.
EXPECTED = {"redis-cli", "python", "js", "go"}
WITHIN = 60


def failures_of(page: Path, port: int) -> list[str]:
    found = blocks(page.read_text(encoding="utf-8"))
    languages = {block.language for block in found}
    failures = [f"{page.name}: no block of {language}" for language in sorted(EXPECTED - languages)]
    unknown = languages - EXPECTED - PROGRAMS.keys() - SHOWN_ONLY
    failures += [f"{page.name}: {language} is not run" for language in sorted(unknown)]
    for block in found:
        if block.language == "redis-cli":
            failures += session_failures(page, block, port)
    for language in PROGRAMS.keys() & languages:
        failures += program_failures(page, program(found, language), language, port)
    if "go" in languages:
        failures += run_failures(page, "go", [golang.PROGRAM, page.stem], golang.HOME, port)
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
    code = code.replace(".Redis(", f".Redis(port={port}, ").replace("new Redis(", f"new Redis({port}, ")
    name, command = PROGRAMS[language]
    # Beside the packages: Node looks for them in the folders above the program.
    with tempfile.TemporaryDirectory(dir=os.environ["DSYNC_RECIPES_HOME"]) as folder:
        path = Path(folder) / name
        path.write_text(code, encoding="utf-8")
        return run_failures(page, language, [*command, path], Path(folder), port)


def run_failures(page: Path, language: str, command: list[str | Path], folder: Path, port: int) -> list[str]:
    empty(port)
    environment = {**os.environ, "REDIS_URL": f"redis://127.0.0.1:{port}", golang.ADDRESS: f"127.0.0.1:{port}"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN, cwd=folder, env=environment)
    except subprocess.TimeoutExpired as late:
        return [f"{page.name}: the {language} blocks take longer than {WITHIN} s\n{late.stdout!r}\n{late.stderr!r}"]
    if done.returncode == 0:
        return []
    return [f"{page.name}: the {language} blocks fail ({LINES})\n{done.stdout}{done.stderr}"]


def main(names: list[str]) -> int:
    pages = [Path(name).resolve() for name in names] or PAGES
    if refused := golang.build(pages):
        print(f"the go blocks do not compile ({LINES})\n{refused}", file=sys.stderr)
        return 1
    failures = []
    # As an exception, so that the server ends with this process.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    with Server() as server:
        for page in pages:
            found = failures_of(page, server.port)
            print(f"{'FAILED' if found else 'ok    '} {page.name}", flush=True)
            failures += found
    for failure in failures:
        print(f"\n{failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
