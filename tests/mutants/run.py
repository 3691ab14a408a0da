#!/usr/bin/env python3
"""Makes mutants of the engine and of src/commands, and shows which of them the tests catch: `make mutants FILE=files`.

`run.py [--file PATTERN] [--longest SECONDS] [--woven] [--left] [--keep]`. cargo-mutants names the mutants; weave.py and
programs.py say how they are built and played. Those of src/commands meet the module's unit tests and, on the server
DSYNC_TEST_SERVER, its stories; the others the tests of the engine.

    caught      a test fails
    endless     the tests go on for ten times as long as they should
    no program  it does not compile
    survived    no test fails: a test is missing, or explained.toml says why that is right. Those are not played again
    left        not decided: with --longest it has met only the tests that take no longer than that, and with --woven
                nothing if it must be built alone

`--keep` writes each file into record.jsonl beside this one, and its sums into RELIABILITY.md; `--left` goes on with
what is left by the record, or has survived without an explanation; `--write` writes the sums alone. `--fresh` looks
whether all that is explained is in the record, and its sums in the page.
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
from typing import Dict, Iterator, List, Set, Tuple

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
LEFT_OUT = re.compile(r"invariants|PutOff::has |Store::ephemeral |/tests?(\.rs|/)")
KINDS = ("caught", "endless", "no program", "survived", "left")


def listed(crate: str, files: str) -> List:
    """Returns the mutants that cargo-mutants names in the files whose names have this pattern in them."""
    from weave import Mutant

    command = ["cargo", "mutants", "--list", "--json", "--no-shuffle"]
    command += ["--package", "dsync-engine" if crate == "engine" else "dsync"]
    command += [word for pattern in CODE[crate] for word in ("--file", pattern)]
    said = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    seen: Dict[str, int] = collections.Counter()
    mutants = []
    for told in json.loads(said):
        if not re.search(files, told["file"]) or LEFT_OUT.search(told["name"]):
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


def played(crate: str, mutants: List, longest: float, and_alone: bool) -> Iterator[Tuple[str, List[Tuple[str, str]]]]:
    """Plays mutants. Yields each file, the smallest first, with its mutants' names and what became of them."""
    import programs

    of_crate = programs.ENGINE if crate == "engine" else programs.MODULE
    known = explained()
    woven = programs.Woven(of_crate, mutants)
    print(f"mutants: {len(mutants)} of {crate}, {len(woven.alone)} of them to be built alone", flush=True)
    tests = woven.tests()
    print(f"mutants: it is known which tests reach {len(tests)} of them", flush=True)
    builder = programs.Alone(of_crate, woven.all_tests)

    def play(mutant) -> str:
        if mutant.name in known:
            return "survived"
        if mutant.number in woven.wrong:
            return "no program"
        if mutant.number in woven.woven:
            return woven.play(mutant, tests.get(mutant.number, []), longest)
        return builder.play(mutant, longest) if and_alone else "left"

    of_file: Dict[str, List] = {}
    for mutant in mutants:
        of_file.setdefault(mutant.file, []).append(mutant)
    files = sorted(of_file.items(), key=lambda item: len(item[1]))
    alone = set(woven.alone)
    with ThreadPoolExecutor(os.cpu_count()) as workers:
        # There is one tree for those that are built, so they are played one after the other, beside all others.
        playing = {it: workers.submit(play, it) for _, all_of_it in files for it in all_of_it if it not in alone}
        for file, all_of_it in files:
            became = {it: playing[it].result() if it in playing else play(it) for it in all_of_it}
            for mutant in all_of_it:
                if became[mutant] == "left" or (became[mutant] == "survived" and mutant.name not in known):
                    print(f"mutants: {became[mutant]}: {mutant.name}", flush=True)
            yield file, [(mutant.name, became[mutant]) for mutant in all_of_it]


def keep(file: str, results: List[Tuple[str, str]], goes_on: bool) -> None:
    """Writes what became of a file's mutants in place of what was known of it, or of what was left of it."""
    rows = record()
    count = collections.Counter(became for _, became in results)
    survivors = [name for name, became in results if became == "survived"]
    if goes_on:
        again = {name for name, _ in results}
        survivors += [name for name in rows[file]["survivors"] if name not in again]
        count.update({kind: rows[file][kind] for kind in ("caught", "endless", "no program")})
        count["survived"] = len(survivors)
    head = ["git", "rev-parse", "--short=12", "HEAD"]
    commit = subprocess.run(head, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    rows[file] = {"file": file, "commit": commit, **{kind: count[kind] for kind in KINDS}}
    rows[file]["survivors"] = sorted(survivors)
    rows[file]["names left"] = [name for name, became in results if became == "left"]
    RECORD.write_text("".join(json.dumps(rows[file]) + "\n" for file in sorted(rows)))
    PAGE.write_text(page())


def record() -> Dict[str, Dict]:
    """Returns what is known of each file."""
    return {row["file"]: row for row in map(json.loads, RECORD.read_text().splitlines())}


def figures() -> str:
    """Returns what RELIABILITY.md says of the record."""
    known = explained()
    heads = ["files", "mutants", *KINDS[:-2], "explained", "survived", "left"]
    lines = ["| | " + " | ".join(heads) + " |", "|---" * (1 + len(heads)) + "|"]
    for name, start in (("the engine", "engine/"), ("`src/commands`", "src/")):
        rows = [row for file, row in record().items() if file.startswith(start)]
        counts = {kind: sum(row[kind] for row in rows) for kind in KINDS}
        counts["explained"] = len({name for row in rows for name in row["survivors"]} & known)
        counts["survived"] -= counts["explained"]
        counts |= {"files": len(rows), "mutants": sum(counts.values())}
        lines.append(f"| {name} | " + " | ".join(f"{counts[head]:,}" for head in heads) + " |")
    return "\n".join(lines)


def page() -> str:
    return with_figures(PAGE.read_text(), BEGIN, figures(), END)


def explained() -> Set[str]:
    return {name for row in tomllib.loads(EXPLAINED.read_text())["survivors"] for name in row["mutants"]}


def is_fresh() -> bool:
    survivors = {name for row in record().values() for name in row["survivors"]}
    known = explained()
    for name in sorted(known - survivors):
        print(f"explained in {EXPLAINED.name}, and no survivor of the record: {name}", file=sys.stderr)
    is_written = page() == PAGE.read_text()
    if not is_written:
        print("RELIABILITY.md does not have the sums of the record: run tests/mutants/run.py --write", file=sys.stderr)
    return known <= survivors and is_written


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", default="", help="only files whose names have this regular expression in them")
    parser.add_argument("--longest", type=float, default=float("inf"), help="leave out tests that take more seconds")
    parser.add_argument("--woven", action="store_true", help="leave those to be built alone")
    parser.add_argument("--left", action="store_true", help="play only what is left of the files of the record")
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
        if asked.file in ("", crate) or any(re.search(asked.file, str(path)) for path in (ROOT / folder).rglob("*.rs")):
            mutants = listed(crate, asked.file if asked.file != crate else "")
            if asked.left:
                rows, known = record().values(), explained()
                left = {name for row in rows for name in row["names left"] + list(set(row["survivors"]) - known)}
                mutants = [mutant for mutant in mutants if mutant.name in left]
            for file, results in played(crate, mutants, asked.longest, not asked.woven):
                sums.update(became for _, became in results)
                if asked.keep:
                    keep(file, results, asked.left)
    print("mutants: " + ", ".join(f"{count} {kind}" for kind, count in sorted(sums.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
