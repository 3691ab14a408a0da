"""Prints the lines of the programs beside this one as a table, and marks what misses its target: ``table.py FILE``."""

import json
import sys
from pathlib import Path

#: What each ratio is at most.
TARGETS = {"cycle": 2.0, "renewal": 1.0}
COLUMNS = ("client", "cycle", "renewal", "raw_us", "helper_us", "renewal_us", "cycles")


def cell(row, column):
    value = row.get(column, "-")
    target = TARGETS.get(column)
    if target is None or value == "-":
        return str(value)
    return f"{value:.2f} {'above' if value > target else '     '}"


def main():
    rows = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines() if line]
    if not rows:
        sys.exit("dsync: nothing was measured.")
    cells = [COLUMNS, *[[cell(row, column) for column in COLUMNS] for row in rows]]
    widths = [max(map(len, column)) for column in zip(*cells)]
    for row in cells:
        first, *others = (text.rjust(width) for text, width in zip(row, widths))
        print(first.strip().ljust(widths[0]), *others, sep="  ")
    bounds = ", ".join(f"{name} at most {bound:g} x" for name, bound in TARGETS.items())
    print(f"Targets: {bounds}. All times are CPU time of the client's process, in microseconds.")


main()
