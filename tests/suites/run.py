#!/usr/bin/env python3
"""Runs a server's own tests with the module in every server that they start: `make server-suites`.

`run.py redis|valkey DIRECTORY MODULE [UNIT ...]` runs the units of DIRECTORY/source, which is built, or those whose names
begin so. A program of the server's name loads the module and becomes the server. A unit that fails runs again with the
module, then without it: what fails without it too is the server's or the machine's. What fails with the module alone must
be in expected.txt beside this file, with the reason. The last line sums up; it exits with 1 if a unit fails that is not.
Results are kept in DIRECTORY/results, a line a unit, so that an interrupted run goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import Queue
from typing import Dict, List, NamedTuple

#: Units that run at the same time.
AT_ONCE = 2
#: A unit that takes longer, in seconds, has failed.
LONGEST = 1800
#: The first port of each that runs, and how many it may use.
PORTS, PORTS_EACH = 21000, 4000

WRAPPER = """#!/bin/sh
# Loads the module into the server, unless it is started for something else than to serve, or as a Sentinel. Where the
# test has written the configuration, it is loaded by that: DEBUG RESTART repeats the command line, and CONFIG REWRITE
# writes there what the command line has loaded.
case " $* " in *" --sentinel "*) exec '{server}' "$@" ;; esac
[ -f "${{1:-}}" ] || exec '{server}' "$@"
grep -qF '{module}' "$1" && exec '{server}' "$@"
case $1 in *tests/tmp/*) echo 'loadmodule {module}' >>"$1"; exec '{server}' "$@" ;; esac
exec '{server}' "$@" --loadmodule '{module}'
"""


OUTCOMES = ("passed", "passed again", "fails without", "expected", "FAILED")


class Result(NamedTuple):
    unit: str
    outcome: str
    tests: int
    seconds: int


class Source:
    """A server's source, built, with or without the module. There are as many copies as units run at the same time,
    because each removes what it finds of others in its own."""

    def __init__(self, product: str, home: Path, module: Path) -> None:
        self.product = product
        self.trees = [home / "source", *(home / f"source-{nth}" for nth in range(1, AT_ONCE))]
        name = f"src/{product}-server"
        # It keeps its name, for which a test looks.
        self.real = home / "server" / f"{product}-server"
        if not self.real.exists():
            self.real.parent.mkdir(exist_ok=True)
            shutil.copy2(self.trees[0] / name, self.real)
        for tree in self.trees:
            if not tree.exists():
                shutil.copytree(self.trees[0], tree, symlinks=True)
        self.programs = [tree / name for tree in self.trees]
        self.wrapper = WRAPPER.format(server=self.real, module=module)

    def load(self, with_module: bool) -> None:
        for program in self.programs:
            # The program may be in use, so it is replaced, not written to.
            new = program.with_suffix(".new")
            if with_module:
                new.write_text(self.wrapper)
                new.chmod(0o755)
            else:
                shutil.copy2(self.real, new)
            new.replace(program)

    def units(self) -> List[str]:
        tests = self.trees[0] / "tests"
        files = [*(tests / "unit").rglob("*.tcl"), *(tests / "integration").glob("*.tcl")]
        return sorted(str(file.relative_to(tests).with_suffix("")) for file in files)

    def run(self, unit: str, nth: int) -> subprocess.CompletedProcess:
        command = ["./runtest", "--single", unit, "--clients", "1", "--timeout", str(LONGEST)]
        command += ["--baseport", str(PORTS + nth * PORTS_EACH), "--portcount", str(PORTS_EACH)]
        return subprocess.run(
            command, cwd=self.trees[nth], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False
        )


def expected(product: str) -> Dict[str, str]:
    lines = Path(__file__).with_name("expected.txt").read_text().splitlines()
    fields = [line.split(None, 2) for line in lines if line and not line.startswith("#")]
    return {unit: reason for of, unit, reason in fields if of == product}


def passed(done: subprocess.CompletedProcess) -> int:
    return len(re.findall(r"\[(?:\x1b\[[0-9;]*m)?ok", done.stdout))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("product")
    parser.add_argument("directory", type=Path)
    parser.add_argument("module", type=Path)
    parser.add_argument("units", nargs="*", help="run only units whose names begin so")
    arguments = parser.parse_args()
    home = arguments.directory.resolve()
    source = Source(arguments.product, home, arguments.module.resolve())
    reasons = expected(arguments.product)
    kept = home / "results"
    kept.touch()
    results = [Result(**json.loads(line)) for line in kept.read_text().splitlines()]
    known = {result.unit for result in results}
    units = [unit for unit in source.units() if unit.startswith(tuple(arguments.units) or "")]
    free: Queue = Queue()
    for nth in range(AT_ONCE):
        free.put(nth)

    def play(unit: str):
        nth = free.get()
        start = time.monotonic()
        done = source.run(unit, nth)
        free.put(nth)
        return unit, done, int(time.monotonic() - start)

    def keep(unit: str, outcome: str, done: subprocess.CompletedProcess, seconds: int) -> None:
        result = Result(unit, outcome, passed(done), seconds)
        results.append(result)
        with kept.open("a") as file:
            file.write(json.dumps(result._asdict()) + "\n")
        print(f"{unit}: {outcome}, {result.tests} tests, {seconds} s", flush=True)

    failed = []
    source.load(True)
    with ThreadPoolExecutor(AT_ONCE) as at_once:
        playing = [at_once.submit(play, unit) for unit in units if unit not in known]
        for unit, done, seconds in (played.result() for played in as_completed(playing)):
            if done.returncode == 0:
                keep(unit, "passed", done, seconds)
            else:
                failed.append(unit)
    # One after another, so that none fails because of another one's load.
    for unit in failed:
        source.load(True)
        _, done, seconds = play(unit)
        if done.returncode == 0:
            keep(unit, "passed again", done, seconds)
            continue
        (home / f"{unit.replace('/', '-')}.log").write_text(done.stdout)
        source.load(False)
        _, alone, _ = play(unit)
        if alone.returncode != 0:
            keep(unit, "fails without", done, seconds)
        else:
            keep(unit, "expected" if unit in reasons else "FAILED", done, seconds)
    source.load(False)

    of_units = [result for result in results if result.unit in units]
    count = {outcome: sum(result.outcome == outcome for result in of_units) for outcome in OUTCOMES}
    for result in of_units:
        if result.outcome not in ("passed", "passed again"):
            print(f"    {result.unit}: {result.outcome}; {reasons.get(result.unit, '')}".rstrip("; "))
    print(
        f"{home.name}: {len(of_units)} units, {sum(result.tests for result in of_units)} tests passed; "
        + ", ".join(f"{number} {outcome}" for outcome, number in count.items())
    )
    return 1 if count["FAILED"] else 0


if __name__ == "__main__":
    sys.exit(main())
