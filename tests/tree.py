"""A copy of the tree, in which the code may be changed: for the bugs that are seeded, and for mutants."""

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
