#!/usr/bin/env python3
"""Runs random commands and faults for hours, and keeps a record: `make soak HOURS=8`.

`run.py HOURS SERVER ...` plays rounds, two at a time, on these servers in turn, each with a seed of its own: of the
fuzzer (tests/server/fuzz), and every fourth of a fleet (clients/conformance/soak.py).
The last line tells what was done in all; it exits with 1 if a round has failed, which prints the command that plays it
again.
With `--record` a line for each server is added to record.jsonl beside this file.

`run.py --fresh` looks whether the figures of RELIABILITY.md are the sums of the record; `--write` writes them there.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Tuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.dont_write_bytecode = True
from tree import ROOT, with_figures

RECORD = Path(__file__).with_name("record.jsonl")
PAGE = ROOT / "RELIABILITY.md"
MODULE = ROOT / "target" / "release" / "libdsync.so"
STORY = "fuzz::random_commands_and_faults_break_no_guarantee"
#: Seconds of a round: long enough for every kind of fault, short enough to be played again.
ROUND = 60
#: Rounds that run at the same time.
AT_ONCE = 2
#: One in so many is of a fleet.
FLEET_EVERY = 4
#: Seconds that a round takes beside those of its faults: servers start, and all is compared at the end.
BESIDE = 10
#: Faults of servers, links and disks begin so; the others are of clients, connections and keys.
OF_SERVERS = ("server: ", "link: ", "disk: ")
#: Between these lines RELIABILITY.md has the figures.
BEGIN, END = "<!-- the record -->", "<!-- end of the record -->"


class Round(NamedTuple):
    server: str
    of_fleet: bool
    seed: int
    seconds: int
    passed: bool
    operations: int
    faults: Dict[str, int]
    output: str

    def again(self) -> str:
        if self.of_fleet:
            variables = f"DSYNC_TEST_SERVER={self.server} DSYNC_TEST_MODULE={MODULE}"
            return f"{variables} sh clients/conformance/soak.sh {self.seconds} {self.seed}"
        return f"SEED={self.seed} SECONDS={self.seconds} SERVERS={self.server} make fuzz"


def story(output: str) -> str:
    """Returns what a round that failed says first, and its last lines: between them are the servers' logs."""
    first = output[: output.find("panicked at") + 2_000]
    return output if len(output) < 30_000 else f"{first[-4_000:]}\n...\n{output[-20_000:]}"


def play(server: str, of_fleet: bool, seed: int, seconds: int) -> Round:
    if of_fleet:
        command = ["sh", "clients/conformance/soak.sh", str(seconds), str(seed)]
        variables = {"DSYNC_TEST_SERVER": server, "DSYNC_TEST_MODULE": str(MODULE)}
    else:
        command = ["cargo", "test", "--quiet", "--test", "server", "--", "--nocapture", "--exact", STORY]
        variables = {"DSYNC_TEST_SERVER": server, "DSYNC_SEED": str(seed), "DSYNC_FUZZ_SECONDS": str(seconds)}
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    counted = re.search(r"^counted: (\d+) operations(.*)$", done.stdout, re.MULTILINE)
    faults = re.findall(r"; ([^=]+)=(\d+)", counted[2]) if counted else []
    return Round(
        server=server,
        of_fleet=of_fleet,
        seed=seed,
        seconds=seconds,
        passed=done.returncode == 0 and counted is not None,
        operations=int(counted[1]) if counted else 0,
        faults={fault: int(count) for fault, count in faults},
        output=done.stdout,
    )


def round_of(number: int, servers: List[str]) -> Tuple[str, bool]:
    """The server of a round, and whether it is of a fleet: each kind goes through the servers by itself."""
    fleets, in_turn = divmod(number, FLEET_EVERY)
    if in_turn == FLEET_EVERY - 1:
        return servers[fleets % len(servers)], True
    return servers[(number - fleets) % len(servers)], False


def rounds_at_least(servers: List[str]) -> int:
    """How many rounds there are until each server had one of the fuzzer, and one was of a fleet."""
    last = len(servers) - 1
    return max(FLEET_EVERY, last + last // (FLEET_EVERY - 1) + 1)


def rounds(servers: List[str], hours: float) -> Iterator[Round]:
    """Plays rounds until the time is over, on each server once at least, and one of a fleet at least."""
    end = time.monotonic() + hours * 3600
    at_least = rounds_at_least(servers)
    seconds = max(5, min(ROUND, int(hours * 3600 * AT_ONCE / at_least) - BESIDE))
    first_seed = int(time.time())
    played: List[Round] = []
    arrived = threading.Condition()
    given = 0
    running = 0

    def work() -> None:
        nonlocal given, running
        while True:
            with arrived:
                if given >= at_least and time.monotonic() + seconds > end:
                    running -= 1
                    arrived.notify()
                    return
                number = given
                given += 1
            server, of_fleet = round_of(number, servers)
            round = play(server, of_fleet, first_seed + number, seconds)
            with arrived:
                played.append(round)
                arrived.notify()

    running = AT_ONCE
    for _ in range(AT_ONCE):
        threading.Thread(target=work, daemon=True).start()
    while True:
        with arrived:
            arrived.wait_for(lambda: played or running == 0)
            if not played:
                return
            round = played.pop(0)
        yield round


def version(server: str) -> str:
    said = subprocess.run([server, "--version"], capture_output=True, text=True, check=True).stdout
    product, number = re.search(r"^(\w+) .*?v=([\d.]+)", said).groups()
    return f"{product} {number}"


def soak(servers: List[str], hours: float, keep: bool) -> bool:
    rows: Dict[str, Dict] = {}
    for round in rounds(servers, hours):
        name = version(round.server)
        empty = {"server": name, "rounds": 0, "seconds": 0, "operations": 0, "faults": {}, "failed": []}
        row = rows.setdefault(name, empty)
        row["rounds"] += 1
        row["seconds"] += round.seconds
        row["operations"] += round.operations
        for fault, count in round.faults.items():
            row["faults"][fault] = row["faults"].get(fault, 0) + count
        result = "passed" if round.passed else "FAILED"
        what = "fleet" if round.of_fleet else "fuzzer"
        print(f"soak: {name}, {what}, seed {round.seed}, {round.seconds} s: {result}", flush=True)
        if not round.passed:
            row["failed"].append(round.seed)
            print(story(round.output))
            print(f"again: {round.again()}", flush=True)
    if keep:
        head = ["git", "rev-parse", "HEAD"]
        commit = subprocess.run(head, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        today = datetime.date.today().isoformat()
        with RECORD.open("a") as record:
            for name in sorted(rows):
                record.write(json.dumps({"date": today, "commit": commit.strip()[:12], **rows[name]}) + "\n")
    return conclude(list(rows.values()))


def conclude(rows: List[Dict]) -> bool:
    total = sums(rows)
    failed = sum(len(row["failed"]) for row in rows)
    print(
        f"soak: {total.operations} operations, {sum(total.faults.values())} faults of {len(total.faults)} kinds, "
        f"{failed} violations"
    )
    return failed == 0


class Sums(NamedTuple):
    operations: int
    seconds: int
    faults: Dict[str, int]


def sums(rows: List[Dict]) -> Sums:
    faults: Dict[str, int] = collections.Counter()
    for row in rows:
        faults.update(row["faults"])
    return Sums(sum(row["operations"] for row in rows), sum(row["seconds"] for row in rows), faults)


def figures() -> str:
    """Returns what RELIABILITY.md says of the record."""
    rows = [json.loads(line) for line in RECORD.read_text().splitlines()]
    lines = ["| server | rounds | hours | operations | faults | of servers, links, disks | rounds that failed |"]
    lines.append("|---|---|---|---|---|---|---|")

    def line(name: str, rows: List[Dict]) -> str:
        total = sums(rows)
        large = sum(count for fault, count in total.faults.items() if fault.startswith(OF_SERVERS))
        cells = [
            name,
            f"{sum(row['rounds'] for row in rows):,}",
            f"{total.seconds / 3600:.1f}",
            f"{total.operations:,}",
            f"{sum(total.faults.values()):,}",
            f"{large:,}",
            str(sum(len(row["failed"]) for row in rows)),
        ]
        return "| " + " | ".join(cells) + " |"

    for name in sorted({row["server"] for row in rows}):
        lines.append(line(name, [row for row in rows if row["server"] == name]))
    lines.append(line("all", rows))
    lines += ["", "| fault | how often |", "|---|---|"]
    lines += [f"| {fault} | {count:,} |" for fault, count in sorted(sums(rows).faults.items())]
    return "\n".join(lines)


def page(text: str, figures: str) -> str:
    return with_figures(text, BEGIN, figures, END)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="add to the record")
    parser.add_argument("--fresh", action="store_true", help="check the figures of RELIABILITY.md")
    parser.add_argument("--write", action="store_true", help="write the figures of RELIABILITY.md")
    parser.add_argument("hours", type=float, nargs="?")
    parser.add_argument("servers", nargs="*")
    options = parser.parse_args()
    if options.fresh or options.write:
        text = PAGE.read_text()
        now = page(text, figures())
        if options.write:
            PAGE.write_text(now)
        elif now != text:
            print("RELIABILITY.md does not have the sums of the record: run tests/soak/run.py --write", file=sys.stderr)
            return 1
        return 0
    if options.hours is None or options.hours <= 0 or not options.servers:
        parser.error("say for how many HOURS, more than 0, and on which servers")
    passed = soak(options.servers, options.hours, options.record)
    if options.record:
        PAGE.write_text(page(PAGE.read_text(), figures()))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
