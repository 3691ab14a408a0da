"""The tree: a copy in which the code may be changed, and pages with figures from a record."""

from __future__ import annotations

import filecmp
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def copy_tree(to: Path) -> None:
    """Copies what git tracks, and leaves alone what is the same, so that little is built anew."""
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    names = {name for name in tracked.split("\0") if name and (ROOT / name).is_file()}
    for name in names:
        source, copy = ROOT / name, to / name
        if not (copy.exists() and filecmp.cmp(source, copy, shallow=False)):
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, copy)
    for copy in to.rglob("*"):
        name = copy.relative_to(to)
        if copy.is_file() and name.parts[0] != "target" and str(name) not in names:
            copy.unlink()


def with_figures(text: str, begin: str, figures: str, end: str) -> str:
    """Returns a page with these figures between its lines `begin` and `end`."""
    before, rest = text.split(begin + "\n")
    _, after = rest.split(end + "\n")
    return f"{before}{begin}\n\n{figures}\n\n{end}\n{after}"
