"""Plays the rows with each driver, and prints the table: `run.py [-d DRIVER] [-r PART-OF-A-ROW]`."""

from __future__ import annotations

import argparse
import os
import random
import sys
import traceback
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import product
from pathlib import Path
from typing import NamedTuple

import rows_of_confirmation  # noqa: F401
import rows_of_failovers  # noqa: F401
import rows_of_holds  # noqa: F401
import rows_of_lost_answers  # noqa: F401
import rows_of_options  # noqa: F401
import rows_of_refusals  # noqa: F401
import rows_of_requests  # noqa: F401
from guarded import has_tls
from lab import Lab
from rows import ROWS, Cannot, Row

HERE = Path(__file__).parent
#: How many rows are played at a time: they wait most of the time. Other parts of the tests are beside them, and now and
#: then a machine is too slow for one of them. So those that fail are played again, alone, unless they are many.
AT_A_TIME, AGAIN = 20, 20


class Result(NamedTuple):
    driver: str
    row: Row
    said: str
    details: str = ""


def drivers() -> dict[str, list[str]]:
    """The command of each driver, by its name."""
    names = ("PYTHON", "NODE_DRIVER", "RUST_DRIVER", "GO_DRIVER")
    python, node, rust, go = (os.environ[f"DSYNC_{name}"] for name in names)
    found = {}
    # Each of the two with the server that it is made for.
    library = "valkey" if "valkey" in Path(os.environ["DSYNC_TEST_SERVER"]).name else "redis"
    for world, waits in product(("threads", "tasks"), ("own", "shared")):
        found[f"python {library}-py {world} {waits}"] = [python, str(HERE / f"drivers/{world}.py"), library, waits]
    for library, waits in product(("ioredis", "redis"), ("own", "shared")):
        name = "ioredis" if library == "ioredis" else "node-redis"
        found[f"node {name} {waits}"] = ["node", "--expose-gc", node, library, waits]
    for waits in ("own", "shared"):
        found[f"rust tasks {waits}"] = [rust, "tasks", waits]
    found["rust threads"] = [rust, "threads"]
    for library in ("go-redis", "redigo"):
        found[f"go {library}"] = [go, library]
    found["dsync run"] = [python, str(HERE / "drivers/command.py"), os.environ["DSYNC_PROGRAM"]]
    return found


def play(driver: str, command: list[str], row: Row) -> Result:
    try:
        with Lab(command, row.mode) as lab:
            row.play(lab)
    except Cannot as cannot:
        return Result(driver, row, "cannot", str(cannot))
    except BaseException:
        return Result(driver, row, "FAILED", traceback.format_exc())
    return Result(driver, row, "ok")


def told(result: Result) -> Result:
    """Prints what did not pass."""
    if result.said != "ok":
        print(f"{result.said}: {result.driver}: {result.row.mode}: {result.row.name}: {result.details}", flush=True)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-d", "--driver", default="", help="only drivers whose name contains this")
    parser.add_argument("-r", "--row", default="", help="only rows whose name or mode contains this")
    asked = parser.parse_args()
    chosen: list[tuple[str, list[str]]] = [item for item in drivers().items() if asked.driver in item[0]]
    asked_rows = [row for row in ROWS if asked.row in f"{row.mode}: {row.name}"]
    if any(row.mode == "tls" for row in asked_rows) and not has_tls():
        print("left out: this server is built without TLS, so no row of the mode tls is played", flush=True)
        asked_rows = [row for row in asked_rows if row.mode != "tls"]
    planned = [(name, command, row) for row in asked_rows for name, command in chosen]
    # Those that cost the most, such as rows with TLS, are not all at the same time; the longest come first.
    random.Random(0).shuffle(planned)
    planned.sort(key=lambda game: game[2].mode == "one")
    with ThreadPoolExecutor(AT_A_TIME) as players:
        games = [players.submit(play, *game) for game in planned]
        results = [told(game.result()) for game in as_completed(games)]
    failed = [result for result in results if result.said == "FAILED"]
    if len(games) > AT_A_TIME and 0 < len(failed) <= AGAIN:
        print(f"again, alone: {len(failed)}", flush=True)
        again = [told(play(result.driver, dict(chosen)[result.driver], result.row)) for result in failed]
        results = [result for result in results if result.said != "FAILED"] + again
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for result in results:
        counts[result.driver][result.said] += 1
    for name, _ in chosen:
        count = counts[name]
        print(f"{name:30} {count['ok']:3} ok, {count['cannot']} cannot, {count['FAILED']} failed")
    still_failed = sum(count["FAILED"] for count in counts.values())
    print(f"{sum(count['ok'] for count in counts.values())} passed, {still_failed} failed")
    return 1 if still_failed else 0


if __name__ == "__main__":
    sys.exit(main())
