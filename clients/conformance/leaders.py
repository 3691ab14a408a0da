"""Lets a fleet lead by turns under faults, and checks what it did: `leaders.py PROCESSES SECONDS [-d KIND]`.

A leader (leaders/) is the shortest program that anybody writes: it acquires a lock, and works in steps of some
milliseconds until its hold is lost, or for 150 of them; then it stands for election again. Half of them *forget* the
hold: they have nothing but the event, signal, context or callback that tells the loss. The others *keep* it, ask it
whether each step counts, and release it. Garbage collectors run all the time. Meanwhile processes are killed and
frozen, and the server refuses, closes connections, stops, and loses its module.

Each step is a line of a leader's standard output: the fence, and from when to when by a clock that all have in common.
The end was read before the last look at whether the hold is lost. No two steps of different holds overlap, and none of
a lower fence begins after one of a higher fence. A process that stood still cannot be told before it goes on. So what
it did while it stood still and a quarter of a second after does not count, unless it asked the hold, which looks at the
clock. All that the processes print else, each error as people and as debuggers see it, shows no token.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from itertools import cycle, product
from pathlib import Path
from typing import Callable, Iterator, NamedTuple, Optional

import redis
from servers import Proxy, Server, eventually

HERE = Path(__file__).parent
#: Milliseconds of the leases.
LEASES = (1_000, 1_500)
#: How many processes stand for each election at least, and how many elections there are at most.
PER_ELECTION, ELECTIONS = 6, 16
#: Nanoseconds from which on a process stood still, half the shortest margin; and by when it is told after that.
STANDSTILL, TOLD_WITHIN = 50_000_000, 250_000_000
#: A token in a request; how a token looks, and how it does where a text was cut.
SENT = re.compile(rb"TOKEN\r\n\$\d+\r\n([^\r]+)\r\n")
TOKEN = re.compile(rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
BEGINNING = re.compile(rb"\b[0-9a-f]{8}-[0-9a-f]{4}")
#: Whose turn it is when the processes are started, again and again.
ORDER = ["dsync", *["python", "go", "rust", "node"] * 2, "python", "go", "rust", "python"]
WAYS = ["forgets", "keeps"]
#: The kinds of leaders in each language.
KINDS = {
    "python": [f"python {world} {way}" for world, way in product(["threads", "tasks"], WAYS)],
    "node": [
        f"node {library} {waits} {way}"
        for library, waits, way in product(["ioredis", "redis"], ["own", "shared"], WAYS)
    ],
    "rust": [f"rust {world} {way}" for world, way in product(["threads", "tasks"], WAYS)],
    "go": [f"go {library} {way}" for library, way in product(["go-redis", "redigo"], WAYS)],
    "dsync": ["dsync run"],
}
USER = ["--user", "leader", "on", ">right", "~*", "&*", "+@all"]
DATA = ["--appendonly", "yes", "--appendfsync", "always"]


def command_of(kind: str, key: str, lease: int) -> list[str]:
    """Returns the command of a leader of this kind."""
    language, *words = kind.split()
    python, node, rust, go = (
        os.environ[f"DSYNC_{name}"] for name in ("PYTHON", "NODE_DRIVER", "RUST_DRIVER", "GO_DRIVER")
    )
    own = [python, str(HERE / "leaders" / "leader.py")]
    library = "valkey" if "valkey" in Path(os.environ["DSYNC_TEST_SERVER"]).name else "redis"
    options = ["--lock", key, "--lease", f"{lease}ms"]
    starts = {
        "python": [*own, library],
        "node": ["node", "--expose-gc", str(Path(node).with_name("leader.js"))],
        "rust": [str(Path(rust).with_name("leader"))],
        "go": [str(Path(go).with_name("leader"))],
        "dsync": [os.environ["DSYNC_PROGRAM"], "run", "-v", *options, "--", *own],
    }
    return [*starts[language], *words]


class Step(NamedTuple):
    fence: int
    start: int
    end: int


class Leader:
    """One process of the fleet, which is started again when it has ended."""

    def __init__(self, name: Path, kind: str, election: str, port: int) -> None:
        self.kind, self.election = kind, election
        self.language = kind.split()[0]
        self.lease = random.choice(LEASES)
        self.log, self._out = name.with_suffix(".log"), name.with_suffix(".steps")
        self._command = command_of(kind, election, self.lease)
        self._environment = {
            **os.environ,
            "DSYNC_URL": f"redis://leader:right@127.0.0.1:{port}",
            "LEADER_KEY": election,
            "LEADER_LEASE": str(self.lease),
        }
        self._lock = threading.Lock()
        self._start()

    def _start(self) -> None:
        with self._out.open("ab") as out, self.log.open("ab") as log:
            # A killed process may leave half a line, which would run into the next one's first.
            out.truncate(len(self._whole_lines()))
            self._process = subprocess.Popen(self._command, stdout=out, stderr=log, env=self._environment)

    def start_again(self) -> Optional[int]:
        """Starts the process if it has ended by itself. Returns its status then."""
        with self._lock:
            status = self._process.poll()
            if status is not None:
                self._start()
            return status

    def kill(self, *, for_good: bool = False) -> None:
        """Ends the process as kill -9 does. What `dsync run` has started ends with it."""
        with self._lock:
            self._process.kill()
            self._process.wait()
            if not for_good:
                self._start()

    def freeze(self, seconds: float) -> None:
        """Stops the process for so long, and what `dsync run` has started."""
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        pids = [pid, *map(int, children.split())]
        signal_all(pids, signal.SIGSTOP)
        threading.Timer(seconds, signal_all, (pids, signal.SIGCONT)).start()

    def has_led_since(self, moment: float) -> bool:
        return self._out.stat().st_mtime > moment

    def steps(self) -> list[Step]:
        """Returns the steps so far, without one that is only half written."""
        return [Step(*map(int, line.split())) for line in self._whole_lines().splitlines()]

    def _whole_lines(self) -> bytes:
        """Returns what was written up to the last end of a line: a write is no single step for a reader."""
        text = self._out.read_bytes()
        return text[: text.rfind(b"\n") + 1]

    def steps_that_count(self) -> Iterator[Step]:
        """Leaves out what the process did when it stood still, see above."""
        last, told_by = Step(0, 0, 0), 0
        for step in self.steps():
            pause = step.start - last.end if step.fence == last.fence else 0
            if max(pause, step.end - step.start) > STANDSTILL:
                told_by = step.end + TOLD_WITHIN
            last = step
            if self.kind.endswith("keeps") or step.end > told_by:
                yield step


def signal_all(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


class FailingServer(Server):
    """A server that refuses, and that loses its module."""

    def __init__(self) -> None:
        super().__init__(*USER, *DATA)
        #: Connected from the beginning, so that it is also while the server is full.
        self.admin = self.client()

    def order(self, *lines: str) -> None:
        for line in lines:
            self.admin.execute_command(*line.split())

    def lose_module(self) -> None:
        with contextlib.suppress(redis.ResponseError):
            self.admin.module_unload("dsync")
            raise AssertionError("the module was unloaded while it was in use")
        kept = self._module, self._arguments
        # Without the module it does not load the data.
        self._module, self._arguments = [], USER
        self.restart()
        self._module, self._arguments = kept

    def restart(self) -> None:
        self.kill()
        self.start()

    def fail_to_save(self) -> None:
        # What is saved cannot be given its name.
        Path(self.folder, "dump.rdb").mkdir()
        self.admin.config_set("save", "3600 1")
        self.order("BGSAVE")

    def save_again(self) -> None:
        self.admin.config_set("save", "")
        Path(self.folder, "dump.rdb").rmdir()


def by(*lines: str) -> Callable[[FailingServer], None]:
    return lambda server: server.order(*lines)


CLOSE = "CLIENT KILL USER leader"
PASSWORD = "ACL SETUSER leader resetpass >"
#: By what is wrong: a word of the refusal, in whatever language; how it begins, and how it ends.
FAULTS: dict[str, tuple[str, Callable[[FailingServer], None], Callable[[FailingServer], None]]] = {
    "without its module": ("has not loaded the dsync module", FailingServer.lose_module, FailingServer.restart),
    "password rotated": ("password", by(f"{PASSWORD}wrong", CLOSE), by(f"{PASSWORD}right")),
    "full": ("max number of clients", by("CONFIG SET maxclients 1", CLOSE), by("CONFIG SET maxclients 2000")),
    "out of memory": ("maxmemory", by("CONFIG SET maxmemory 1"), by("CONFIG SET maxmemory 0")),
    "killed": ("", FailingServer.kill, FailingServer.start),
    "permission taken": ("permissions", by("ACL SETUSER leader -@all"), by("ACL SETUSER leader +@all")),
    "cannot save": ("misconf", FailingServer.fail_to_save, FailingServer.save_again),
    "a replica": ("read only replica", by("REPLICAOF 127.0.0.1 1"), by("REPLICAOF NO ONE")),
    "connections closed": ("", by(CLOSE), by()),
    "stopped": ("", FailingServer.stop, FailingServer.go_on),
}
#: Of those that pass, a log tells the first one of a request only, which may have been another.
FINAL = {"has not loaded the dsync module", "password", "permissions"}


class Fleet:
    def __init__(self, processes: int, part: str, folder: Path) -> None:
        self.violations: list[str] = []
        self.faults: Counter[str] = Counter()
        self.is_over = threading.Event()
        self.server = FailingServer()
        #: One leader of each language works through one of them, so that its tokens are known.
        self.proxies = {language: Proxy(self.server.port) for language in KINDS}
        ports = {language: [proxy.port] for language, proxy in self.proxies.items()}
        self.elections = max(1, min(ELECTIONS, processes // PER_ELECTION))
        chosen = {language: cycle([kind for kind in kinds if part in kind]) for language, kinds in KINDS.items()}
        turns = cycle([language for language in ORDER if any(part in kind for kind in KINDS[language])])
        self.leaders: list[Leader] = []
        for number, language in zip(range(processes), turns):
            port = ports[language].pop() if ports[language] else self.server.port
            election = f"leader:{number % self.elections}"
            self.leaders.append(Leader(folder / str(number), next(chosen[language]), election, port))
            # Not all of them at once.
            time.sleep(0.03)

    def close(self) -> None:
        self.is_over.set()
        for leader in self.leaders:
            leader.kill(for_good=True)
        for proxy in self.proxies.values():
            proxy.close()
        self.server.close()

    def play(self, seconds: float) -> None:
        told = self.server.admin.info
        eventually(lambda: told("dsync")["dsync_waiters"] > len(self.leaders) / 2, "a fleet", within=120)
        workers = [threading.Thread(target=work) for work in (self.tend, self.fail)]
        for worker in workers:
            worker.start()
        last = time.monotonic() + seconds
        for name, (_, begin, end) in cycle(FAULTS.items()):
            # The places of those who gave up while the server refused them are kept for five seconds.
            time.sleep(random.uniform(2.5, 3.5))
            if time.monotonic() > last:
                break
            self.faults[f"server {name}"] += 1
            begin(self.server)
            time.sleep(1.5)
            end(self.server)
        self.is_over.set()
        for worker in workers:
            worker.join()
        now = time.time()
        eventually(lambda: len(self.led_since(now)) == self.elections, "elections go on when the faults are over")
        languages = {leader.language for leader in self.leaders}
        eventually(lambda: {leader.language for leader in self.leaders if leader.steps()} == languages, "all have led")

    def led_since(self, moment: float) -> set[str]:
        return {leader.election for leader in self.leaders if leader.has_led_since(moment)}

    def tend(self) -> None:
        while not self.is_over.wait(0.2):
            for leader in self.leaders:
                status = leader.start_again()
                # `dsync run` ends with its command, and with its hold.
                if status is not None and leader.language != "dsync":
                    self.violations.append(f"{leader.kind} has ended with {status}: {leader.log.read_text()[-2_000:]}")

    def fail(self) -> None:
        """Kills and freezes processes, most of them leaders."""
        while not self.is_over.wait(random.uniform(0, 6 / self.elections)):
            leading = [leader for leader in self.leaders if leader.has_led_since(time.time() - 0.2)]
            leader = random.choice(leading if leading and random.random() < 0.7 else self.leaders)
            kind = random.choice(["killed", "frozen", "frozen past its lease"])
            self.faults[f"process {kind}"] += 1
            if kind == "killed":
                leader.kill()
            else:
                with contextlib.suppress(OSError):  # It has ended.
                    leader.freeze(random.uniform(0.1, 1) + (leader.lease / 1_000 if "past" in kind else 0))

    def judge(self) -> int:
        """Looks whether two have led at a time. Returns how many steps count."""
        elections: dict[str, list[tuple[Step, str]]] = {}
        terms: Counter[str] = Counter()
        for leader in self.leaders:
            elections.setdefault(leader.election, []).extend((step, leader.kind) for step in leader.steps_that_count())
            terms[leader.language] += len({step.fence for step in leader.steps()})
        for steps in elections.values():
            latest, its_kind = Step(0, 0, 0), ""
            for step, kind in sorted(steps, key=lambda item: item[0].start):
                if step.fence < latest.fence or (step.fence > latest.fence and step.start < latest.end):
                    self.violations.append(f"two led: {kind}: {step}, {its_kind}: {latest}")
                latest, its_kind = max((latest, its_kind), (step, kind), key=lambda item: item[0].end)
        print(f"steps: {sum(len(leader.steps()) for leader in self.leaders)}")
        print("terms:", ", ".join(f"{count} {language}" for language, count in sorted(terms.items())))
        return sum(map(len, elections.values()))

    def judge_texts(self) -> None:
        """Looks for tokens in what was printed, and whether the refusals have been told."""
        text = b""
        for leader in self.leaders:
            said = leader.log.read_bytes()
            text += said.lower()
            shown = [line.decode(errors="replace") for line in said.splitlines() if BEGINNING.search(line)]
            self.violations += [f"{leader.kind} has shown a token: {line}" for line in shown]
        for language in {leader.language for leader in self.leaders}:
            tokens = set(SENT.findall(self.proxies[language].sent))
            if not tokens or not all(TOKEN.fullmatch(token) for token in tokens):
                self.violations.append(f"{language}: are these tokens? {tokens}")
        told = {word: text.count(word.encode()) for word, *_ in FAULTS.values() if word}
        print(f"printed: {len(text)} bytes,", ", ".join(f"{count} {word}" for word, count in told.items()))
        for name, (word, *_) in FAULTS.items():
            if self.faults[f"server {name}"] and word in FINAL and not told[word]:
                self.violations.append(f"server {name}: nobody has told {word!r}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("processes", type=int)
    parser.add_argument("seconds", type=float)
    parser.add_argument("-d", "--driver", default="", help="only leaders whose kind contains this")
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="dsync-leaders-"))
    fleet = Fleet(asked.processes, asked.driver, folder)
    try:
        fleet.play(asked.seconds)
    finally:
        fleet.close()
    count = fleet.judge()
    fleet.judge_texts()
    for violation in fleet.violations[:20]:
        print(f"VIOLATION: {violation}")
    faults = ", ".join(f"{count} {kind}" for kind, count in sorted(fleet.faults.items()))
    print(f"faults: {faults}")
    if fleet.violations:
        print(f"what was done and printed: {folder}")
    else:
        shutil.rmtree(folder)
    print(f"{count} passed, {len(fleet.violations)} failed")
    return 1 if fleet.violations else 0


if __name__ == "__main__":
    sys.exit(main())
