#!/usr/bin/env python3
"""Seeds bugs, and shows that each is caught: the checkers are checked.

`run.py [--list] [--fresh] [PART-OF-A-NAME ...]`. Each TOML file beside this one has the bugs of a layer:

    command = "…"           how the tests of this layer are run; {caught_by} stands for the bug's own
    missed = "…"            optional: what the last lines say when nothing was caught

    [[bug]]
    name = "…"              layer and name are unique
    breaks = "…"            the rule that it breaks
    file = "…"
    line = '''…'''          stands once in the file, and becomes
    seeded = '''…'''
    caught_by = "…"

A bug is caught when its command fails by a test: not if it does not compile, or if nothing ran. `--fresh` only looks
whether each line stands once in its file. The bugs are seeded in a copy of the tree under target/bugs, which is built
once. DSYNC_TEST_SERVER and DSYNC_TEST_MODULE are the server and the module of the tests that need them.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Iterator, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.dont_write_bytecode = True
from tree import ROOT, copy_tree

TREE = ROOT / "target" / "bugs" / "tree"
#: What a test that fails says, in the layers' runners.
FAILED = re.compile(r"^test result: FAILED|^\d+ passed, [1-9]\d* failed$|^# fail [1-9]|^--- FAIL: ", re.MULTILINE)
#: Seconds until a bug is caught, besides the time for building what it touches.
LIMIT = 600


class Bug(NamedTuple):
    name: str
    breaks: str
    file: str
    line: str
    seeded: str
    command: str

    def seed(self, tree: Path) -> None:
        path = tree / self.file
        text = path.read_text()
        assert text.count(self.line) == 1, f"{self.name}: its line stands {text.count(self.line)} times in {self.file}"
        path.write_text(text.replace(self.line, self.seeded))

    def mend(self, tree: Path) -> None:
        shutil.copyfile(ROOT / self.file, tree / self.file)


def bugs() -> Iterator[Bug]:
    for path in sorted(Path(__file__).parent.glob("*.toml")):
        layer = tomllib.loads(path.read_text())
        for bug in layer["bug"]:
            command = layer["command"].replace("{caught_by}", bug["caught_by"])
            yield Bug(f"{path.stem}: {bug['name']}", bug["breaks"], bug["file"], bug["line"], bug["seeded"], command)


def stale(bug: Bug) -> str | None:
    """Returns why a bug cannot be seeded any more."""
    path = ROOT / bug.file
    count = path.read_text().count(bug.line) if path.exists() else 0
    return None if count == 1 and bug.line != bug.seeded else f"its line stands {count} times in {bug.file}"


def play(bug: Bug) -> tuple[bool, str]:
    """Returns whether the bug was caught, and what was printed."""
    bug.seed(TREE)
    try:
        environment = {**os.environ, "CARGO_TARGET_DIR": str(TREE / "target"), "CARGO_PROFILE_DEV_DEBUG": "0"}
        ran = subprocess.run(
            bug.command, shell=True, cwd=TREE, env=environment, timeout=LIMIT,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        )  # fmt: skip
        return ran.returncode != 0 and FAILED.search(ran.stdout) is not None, ran.stdout
    except subprocess.TimeoutExpired as over:
        return False, f"{over.stdout or ''}\nnot caught in {LIMIT} s"
    finally:
        bug.mend(TREE)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART-OF-A-NAME")
    parser.add_argument("--list", action="store_true", help="only list the bugs")
    parser.add_argument("--fresh", action="store_true", help="only look whether each can still be seeded")
    asked = parser.parse_args()
    chosen = [bug for bug in bugs() if not asked.parts or any(part in bug.name for part in asked.parts)]
    missed = 0
    if asked.list or asked.fresh:
        for bug in chosen:
            why = stale(bug) if asked.fresh else None
            missed += why is not None
            if why or asked.list:
                print(f"{bug.name}: {why or bug.breaks}")
        print(f"{len(chosen) - missed} passed, {missed} failed")
        return 1 if missed else 0
    copy_tree(TREE)
    for bug in chosen:
        begun = time.monotonic()
        is_caught, said = play(bug)
        missed += not is_caught
        print(f"{'caught' if is_caught else 'MISSED'} after {time.monotonic() - begun:3.0f} s: {bug.name}", flush=True)
        if not is_caught:
            print("    " + "\n    ".join(said.splitlines()[-15:]))
    print(f"{len(chosen) - missed} passed, {missed} failed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
