"""Types what docs/sentinel-clients.md tells against a group with the page's lines: `typed.py [PART-OF-A-LIBRARY]`.

A program is the code for a library, as it is but for addresses and files. It has to take the lock and print the fence.
It does so with the rights that the page's table gives it at Sentinels, and does not with one of them less.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Callable, NamedTuple

from guarded import CLIENT, PAGE, WORKER, GuardedGroup, has_tls

REPOSITORY = Path(__file__).parents[2]
HOME = REPOSITORY / "target/clients/conformance"
#: How long a program may take, in seconds: node-redis connects to each server and Sentinel first.
WITHIN, GIVEN_UP_WITHIN = 90, 5
FENCE = re.compile(r"^\d{16}$", re.M)

GO = """package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"dsync-client"
	"dsync-client/goredis"
	"github.com/redis/go-redis/v9"
)

func main() {
	if err := work(context.Background()); err != nil {
		panic(err)
	}
}

func work(ctx context.Context) error {
"""
RUST = """use dsync_client::redis::{self, ConnectionInfo, RedisResult, TlsCertificates};
use dsync_client::{Client, Server};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    rustls::crypto::ring::default_provider().install_default().expect("the first provider");
"""


class Program(NamedTuple):
    #: As the table calls it, and where its code is on the page.
    library: str
    language: str
    blocks: slice
    #: Makes a program of the code in a folder, and returns the command that runs it.
    make: Callable[[str, Path], list[str]]


def python(code: str, folder: Path) -> list[str]:
    (folder / "program.py").write_text(code)
    return [sys.executable, "-W", "error", str(folder / "program.py")]


def valkey(code: str, folder: Path) -> list[str]:
    return python(code.replace("from redis.", "from valkey."), folder)


def node(code: str, folder: Path) -> list[str]:
    (folder / "program.mjs").write_text(code)
    return ["node", "--unhandled-rejections=strict", str(folder / "program.mjs")]


def golang(code: str, folder: Path) -> list[str]:
    (folder / "go.mod").write_text("module typed\n\ngo 1.21\n")
    workspace = REPOSITORY / "target/go"
    used = (workspace / "go.work").read_text()
    used = used.replace("../../", f"{REPOSITORY}/").replace("./root", f"{workspace}/root")
    (folder / "go.work").write_text(f"{used}\nuse .\n")
    (folder / "main.go").write_text(f"{GO}{code}}}\n")
    environment = {**os.environ, "GOWORK": f"{folder}/go.work", "GOFLAGS": "", "GOPROXY": "off", "GOTOOLCHAIN": "local"}
    compiler = subprocess.check_output(["sh", str(REPOSITORY / "scripts/go.sh")], text=True).strip()
    subprocess.run([compiler, "build", "-o", "program", "."], cwd=folder, env=environment, check=True)
    return [str(folder / "program")]


def rust(code: str, folder: Path) -> list[str]:
    """Beside the driver, with its dependencies, which are built already."""
    driver = Path(__file__).parent / "drivers/rust"
    shutil.copy(driver / "Cargo.lock", folder)
    manifest = (driver / "Cargo.toml").read_text().replace('"../../../rust"', f'"{REPOSITORY}/clients/rust"')
    (folder / "Cargo.toml").write_text(f'{manifest}\n[[bin]]\nname = "typed"\npath = "main.rs"\n')
    (folder / "main.rs").write_text(f"{RUST}{code}    Ok(())\n}}\n")
    environment = {**os.environ, "CARGO_TARGET_DIR": str(HOME / "rust")}
    subprocess.run(["cargo", "build", "--quiet", "--locked"], cwd=folder, env=environment, check=True)
    return [str(HOME / "rust/debug/typed")]


def shell(code: str, folder: Path) -> list[str]:
    (folder / "program.sh").write_text(code)
    return ["sh", "-eu", str(folder / "program.sh")]


PROGRAMS = [
    Program("redis-py", "python", slice(0, 2), python),
    Program("valkey-py", "python", slice(0, 2), valkey),
    Program("ioredis", "js", slice(0, 1), node),
    Program("node-redis", "js", slice(1, 2), node),
    Program("go-redis", "go", slice(0, 1), golang),
    Program("redis-rs", "rust", slice(0, 1), rust),
    Program("dsync run", "sh", slice(0, 1), shell),
]


def rights() -> dict[str, str]:
    """Returns what the page's table says that a library needs at Sentinels."""
    rows = re.findall(r"^\| ([^|`]+) \| `(\+(?:role|sentinel)[^`]*)` \|$", PAGE, re.M)
    return {name: text.replace("\\|", "|") for names, text in rows for name in names.split(", ")}


def typed(code: str, group: GuardedGroup, files: Path) -> str:
    """Returns the code with this machine's addresses and files."""
    for number, sentinel in enumerate(group.sentinels, 1):
        code = re.sub(rf"sentinel-{number}\.example(\D+)26379", rf"127.0.0.1\g<1>{sentinel.port}", code)
    return code.replace("/etc/redis/", f"{files}/")


def run(program: Program, group: GuardedGroup, files: Path) -> None:
    code = "".join(re.findall(rf"^```{program.language}\n(.*?)^```$", PAGE, re.M | re.S)[program.blocks])
    # Node.js looks for packages in the folders above the program.
    with tempfile.TemporaryDirectory(dir=HOME / "node") as folder:
        command = program.make(typed(code, group, files), Path(folder))
        takes_the_lock(command)
        least = rights()[program.library].split()
        allow(group, least)
        takes_the_lock(command)
        for right in least:
            allow(group, [other for other in least if other != right])
            fails(command, right)


def allow(group: GuardedGroup, rights: list[str]) -> None:
    for sentinel in group.sentinels:
        words = [CLIENT.user, "resetchannels", "-@all", "+@connection", *rights]
        sentinel.client().execute_command("ACL", "SETUSER", *words)


def start(command: list[str], within: float) -> subprocess.CompletedProcess[str]:
    passwords = {"SENTINEL_PASSWORD": CLIENT.password, "REDIS_PASSWORD": WORKER.password}
    path = f"{Path(os.environ['DSYNC_PROGRAM']).parent}:{os.environ['PATH']}"
    environment = {**os.environ, **passwords, "PATH": path}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=within, check=False)


def takes_the_lock(command: list[str]) -> None:
    done = start(command, WITHIN)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    assert FENCE.search(done.stdout), f"no fence:\n{done.stdout}{done.stderr}"


def fails(command: list[str], right: str) -> None:
    """Some libraries try for a minute, which is not awaited."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        done = start(command, GIVEN_UP_WITHIN)
        assert not FENCE.search(done.stdout), f"works without {right}, which the table names"


def main(part: str = "") -> int:
    if not has_tls():
        print("left out: this server is built without TLS, so nothing of docs/sentinel-clients.md is typed")
        return 0
    for program in PROGRAMS:
        if part not in program.library:
            continue
        group = GuardedGroup(over_tls=True)
        with tempfile.TemporaryDirectory() as folder:
            files = Path(folder)
            (files / "tls").mkdir()
            shutil.copy(group.authorities[0].file, files / "tls/ca.crt")
            for login in (CLIENT, WORKER):
                (files / f"{login.user}.password").touch(mode=0o600)
                (files / f"{login.user}.password").write_text(f"{login.password}\n")
            try:
                run(program, group, files)
            except AssertionError as wrong:
                raise AssertionError(f"{program.library}: {wrong}") from None
            finally:
                group.close()
        print(f"typed: {program.library}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
