#!/usr/bin/env python3
"""Makes mutants of the engine and of src/commands, and shows which of them the tests catch: `make mutants FILE=part`.

`run.py [--file PART] [--longest SECONDS] [--keep]`. cargo-mutants names the mutants; weave.py and programs.py say how
they are built and played. Those of src/commands meet the module's unit tests, the others the engine's.

    caught      a test fails
    endless     the tests go on for twenty times as long as they should
    no program  it does not compile
    survived    no test fails: explained.toml says why that is right, for each
    left        not decided: with --longest it has met only the tests that take no longer than that

`--keep` writes the files that are decided into record.jsonl beside this file, and its sums into RELIABILITY.md; `--write`
does the latter alone. `--fresh` looks whether each survivor of the record is explained, and the sums are written.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import re
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Dict, List

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.dont_write_bytecode = True
from tree import ROOT, with_figures

RECORD = Path(__file__).with_name("record.jsonl")
EXPLAINED = Path(__file__).with_name("explained.toml")
PAGE = ROOT / "RELIABILITY.md"
BEGIN, END = "<!-- the mutants -->", "<!-- end of the mutants -->"
#: What is looked at, by the crate whose tests are to catch it.
CODE = {"engine": ["engine/src/**/*.rs"], "module": ["src/commands/**/*.rs"]}
#: Checks that only tests run find nothing in right code, whatever they look for.
LEFT_OUT = re.compile(r"invariants|/tests?(\.rs|/)")
DECIDED = ("caught", "endless", "no program", "survived")


def listed(crate: str, part: str) -> List:
    """Returns the mutants that cargo-mutants names in the files whose names have this part."""
    from weave import Mutant

    command = ["cargo", "mutants", "--list", "--json", "--no-shuffle"]
    command += ["--package", "dsync-engine" if crate == "engine" else "dsync"]
    command += [word for pattern in CODE[crate] for word in ("--file", pattern)]
    said = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    seen: Dict[str, int] = collections.Counter()
    mutants = []
    for told in json.loads(said):
        if part not in told["file"] or LEFT_OUT.search(told["name"]):
            continue
        # A line of code moves; the first, second … of equal names in a file stays that.
        name = re.sub(r"^([^:]*):\d+:\d+:", r"\1:", told["name"])
        seen[name] += 1
        if seen[name] > 1:
            name += f" ({seen[name]})"
        start, end = told["span"]["start"], told["span"]["end"]
        mutants.append(
            Mutant(
                number=len(mutants) + 1,
                name=name,
                file=told["file"],
                genre=told["genre"],
                start=(start["line"], start["column"]),
                end=(end["line"], end["column"]),
                replacement=told["replacement"],
            )
        )
    return mutants


def played(crate: str, part: str, longest: float, and_alone: bool) -> List:
    """Plays mutants. Returns them, each with what became of it."""
    import programs

    of_crate = programs.ENGINE if crate == "engine" else programs.MODULE
    mutants = listed(crate, part)
    woven = programs.Woven(of_crate, mutants)
    print(f"mutants: {len(mutants)} of {crate}, {len(woven.alone)} of them to be built alone", flush=True)
    tests = woven.tests()
    print(f"mutants: it is known which tests reach {len(tests)} of them", flush=True)
    became = {number: "no program" for number in woven.wrong}

    def play(mutant) -> None:
        became[mutant.number] = woven.play(mutant.number, tests.get(mutant.number, []), longest)
        if became[mutant.number] not in ("caught", "endless"):
            print(f"mutants: {became[mutant.number]}: {mutant.name}", flush=True)

    with ThreadPoolExecutor(os.cpu_count()) as workers:
        list(workers.map(play, (mutant for mutant in mutants if mutant.number in woven.woven)))
    builder = programs.Alone(of_crate) if and_alone and woven.alone else None
    for mutant in woven.alone:
        became[mutant.number] = builder.play(mutant) if builder else "left"
        if became[mutant.number] in ("survived", "left"):
            print(f"mutants: {became[mutant.number]}, alone: {mutant.name}", flush=True)
    return [(mutant, became[mutant.number]) for mutant in mutants]


def keep(results: List) -> None:
    """Writes the files all of whose mutants are decided, in place of what was known of them."""
    rows = {row["file"]: row for row in map(json.loads, RECORD.read_text().splitlines())} if RECORD.exists() else {}
    head = ["git", "rev-parse", "--short=12", "HEAD"]
    commit = subprocess.run(head, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    of_file: Dict[str, List] = {}
    for mutant, became in results:
        of_file.setdefault(mutant.file, []).append((mutant.name, became))
    for file, all_of_it in of_file.items():
        if all(became in DECIDED for _, became in all_of_it):
            count = collections.Counter(became for _, became in all_of_it)
            survivors = sorted(name for name, became in all_of_it if became == "survived")
            counts = {kind: count[kind] for kind in DECIDED}
            rows[file] = {"file": file, "commit": commit, **counts, "survivors": survivors}
    RECORD.write_text("".join(json.dumps(rows[file]) + "\n" for file in sorted(rows)))


def record() -> List[Dict]:
    return [json.loads(line) for line in RECORD.read_text().splitlines()]


def figures() -> str:
    """Returns what RELIABILITY.md says of the record."""
    lines = ["| | files | mutants | " + " | ".join(DECIDED) + " |", "|---|---|---|---|---|---|---|"]
    for name, start in (("the engine", "engine/"), ("`src/commands`", "src/")):
        rows = [row for row in record() if row["file"].startswith(start)]
        counts = [sum(row[kind] for row in rows) for kind in DECIDED]
        cells = [name, str(len(rows)), f"{sum(counts):,}", *(f"{count:,}" for count in counts)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def page() -> str:
    return with_figures(PAGE.read_text(), BEGIN, figures(), END)


def is_fresh() -> bool:
    survivors = {name for row in record() for name in row["survivors"]}
    explained = {row["mutant"] for row in tomllib.loads(EXPLAINED.read_text())["survivor"]}
    for name in sorted(survivors - explained):
        print(f"not explained in {EXPLAINED.name}: {name}", file=sys.stderr)
    for name in sorted(explained - survivors):
        print(f"explained in {EXPLAINED.name}, and no survivor of the record: {name}", file=sys.stderr)
    is_written = page() == PAGE.read_text()
    if not is_written:
        print("RELIABILITY.md does not have the sums of the record: run tests/mutants/run.py --write", file=sys.stderr)
    return survivors == explained and is_written


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", default="", help="only files whose names have this part")
    parser.add_argument("--longest", type=float, default=float("inf"), help="leave out tests that take more seconds")
    parser.add_argument("--woven", action="store_true", help="leave those to be built alone")
    parser.add_argument("--keep", action="store_true", help="add to the record")
    parser.add_argument("--fresh", action="store_true", help="check the record, and the figures of RELIABILITY.md")
    parser.add_argument("--write", action="store_true", help="write the figures of RELIABILITY.md")
    asked = parser.parse_args()
    if asked.write:
        PAGE.write_text(page())
        return 0
    if asked.fresh:
        return 0 if is_fresh() else 1
    sums: Dict[str, int] = collections.Counter()
    for crate, patterns in CODE.items():
        folder = patterns[0].split("*")[0]
        if asked.file in ("", crate) or any(asked.file in str(path) for path in (ROOT / folder).rglob("*.rs")):
            results = played(crate, asked.file if asked.file != crate else "", asked.longest, not asked.woven)
            sums.update(became for _, became in results)
            if asked.keep:
                keep(results)
                PAGE.write_text(page())
    print("mutants: " + ", ".join(f"{count} {kind}" for kind, count in sorted(sums.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
