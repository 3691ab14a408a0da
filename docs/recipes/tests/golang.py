"""Compiles the Go code of all pages together: one module under target/recipes/go, with a package for each page, and one
program, whose argument names the page to run.

The code of a page has a hidden function `Check`, and no imports: they are those of the names that it uses. It connects to
localhost:6379, in place of which it gets the address in the environment.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

from blocks import blocks, program

ROOT = Path(__file__).resolve().parents[3]
HOME = Path(os.environ["DSYNC_RECIPES_HOME"]) / "go"
PROGRAM = HOME / "recipes"
#: The environment variable of the server's address.
ADDRESS = "DSYNC_RECIPES_ADDRESS"
_PATHS = {
    "atomic": "sync/atomic",
    "check": "recipes/check",
    "dsync": "dsync-client",
    "goredis": "dsync-client/goredis",
    "http": "net/http",
    "httptest": "net/http/httptest",
    "json": "encoding/json",
    "rand": "math/rand",
    "redis": "github.com/redis/go-redis/v9",
    "sha256": "crypto/sha256",
}
_SAME = "bytes context errors fmt io maps os slices sort strconv strings sync time".split()
_PATHS.update({name: name for name in _SAME})
_USED = re.compile(rf"(?<![\w.\"/])({'|'.join(_PATHS)})\.[A-Z]")


def build(pages: list[Path]) -> str:
    """Compiles the Go code of the pages that have some. Returns what the compiler says against it, if anything."""
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir()
    (HOME / "go.mod").write_text("module recipes\n\ngo 1.21\n")
    workspace = ROOT / "target" / "go"
    # The libraries that scripts/go.sh has unpacked, with this module beside them.
    used = (workspace / "go.work").read_text().replace("../../", f"{ROOT}/").replace("./root", f"{workspace}/root")
    (HOME / "go.work").write_text(f"{used}\nuse .\n")
    shutil.copytree(Path(__file__).parent / "check", HOME / "check")
    cases = {}
    for page in pages:
        code = program(blocks(page.read_text(encoding="utf-8")), "go")
        if code.strip():
            (HOME / page.stem).mkdir()
            (HOME / page.stem / "recipe.go").write_text(_package(code), encoding="utf-8")
            cases[page.stem] = "_" + page.stem.replace("-", "_")
    imports = "".join(f'import {name} "recipes/{stem}"\n' for stem, name in cases.items())
    entries = "".join(f'\t"{stem}": {name}.Check,\n' for stem, name in cases.items())
    main = f'package main\n\nimport "os"\n{imports}\nvar pages = map[string]func(){{\n{entries}}}\n'
    (HOME / "main.go").write_text(f"{main}\nfunc main() {{ pages[os.Args[1]]() }}\n")
    environment = {**os.environ, "GOWORK": f"{HOME}/go.work", "GOFLAGS": "", "GOPROXY": "off", "GOTOOLCHAIN": "local"}
    done = subprocess.run(
        [os.environ["DSYNC_RECIPES_GO"], "build", "-o", PROGRAM, "."],
        capture_output=True, text=True, cwd=HOME, env=environment,
    )
    return done.stderr if done.returncode else ""


def _package(code: str) -> str:
    """Returns the code as a package; its first line, which no block has, gets what comes before the code."""
    code = code.replace('"localhost:6379"', f'os.Getenv("{ADDRESS}")')
    imports = "".join(f'; import "{_PATHS[name]}"' for name in sorted(set(_USED.findall(code))))
    return f"package recipe{imports}{code}"
