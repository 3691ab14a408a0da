"""Which file uses which: none uses one that uses it, not even for its types, so that each can be read by itself."""

import ast
from pathlib import Path

import dsync

HOME = Path(dsync.__file__).parent


def name_of(file: Path) -> str:
    parts = file.relative_to(HOME).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {name_of(file): file for file in HOME.rglob("*.py")}


def uses(name: str) -> set[str]:
    """Returns the files of the package that this one imports, wherever it does."""
    file = FILES[name]
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            folder = file.parent.relative_to(HOME).parts
            near = [*folder[: len(folder) - node.level + 1], *filter(None, (node.module or "").split("."))]
            whole = [".".join([*near, alias.name]) for alias in node.names]
            found.update(each for each in whole if each in FILES)
            if not all(each in FILES for each in whole):
                found.add(".".join(near))
    return found - {name}


def test_no_file_uses_one_that_uses_it() -> None:
    left = {name: uses(name) for name in FILES}
    assert left["_steps"] >= {"_times", "_performer"}, left["_steps"]
    while free := [name for name, used in left.items() if not used & left.keys()]:
        for name in free:
            del left[name]
    assert not left, "a circle of imports"
