"""The driver of `dsync run`: `command.py PROGRAM`. Each hold is a process of it. Its orders are those of the README."""

from __future__ import annotations

import ctypes
import json
import queue
import re
import signal
import subprocess
import sys
import threading
from typing import Any, Optional

#: What runs under the hold. It says what it was told, then when it is stopped, and ends with the status it is given.
COMMAND = """
trap 'echo lost; exit 0' TERM
echo "$DSYNC_FENCE ${DSYNC_ATTEMPT:--} ${DSYNC_INDEX:--}"
while :; do
    if read -r status; then exit "$status"; fi
done
"""
#: What the exit statuses of `dsync` mean that are no errors.
MEANINGS = {75: "busy", 79: "lost", 80: "failed", 130: "given up"}
#: The options of `dsync run` by the fields of an order: values as they are, and milliseconds.
WORDS = {"lane": "--lane", "lane_limit": "--lane-limit", "attempts": "--max", "replicas": "--replicas"}
WORDS["owner"] = "--owner"
TIMES = {"lease": "--lease", "wait": "--wait", "min_hold": "--min-hold", "max_hold": "--max-hold", "within": "--within"}
LOGIN = {"user": "--user", "password": "--pass", "ca": "--cacert"}
LOGIN_AT_SENTINELS = {"sentinel_user": "--sentinel-user", "sentinel_password": "--sentinel-pass"}
FLAGS = {"index": "--index", "disk": "--disk"}

server: list[str] = []
held: dict[str, Run] = {}
speaking = threading.Lock()


def dies_with_its_thread() -> None:
    """PR_SET_PDEATHSIG: what the driver's first thread starts is killed with the driver."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Run:
    """One `dsync run`."""

    def __init__(self, order: dict[str, Any]) -> None:
        words = [f"--{order['family']}", order["key"]]
        if order["family"] == "semaphore":
            words += ["--limit", str(order.get("limit", 1))]
        for name, option in WORDS.items():
            if order.get(name) is not None:
                words += [option, str(order[name])]
        for name, option in TIMES.items():
            if order.get(name):
                words += [option, f"{order[name]}ms"]
        words += [option for name, option in FLAGS.items() if order.get(name)] + ["--try"] * (order["wait"] == 0)
        self.process = subprocess.Popen(
            [sys.argv[1], "run", *server, *words, "sh", "-c", COMMAND],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=dies_with_its_thread,
        )
        self._lines: queue.Queue[Optional[str]] = queue.Queue()
        self.is_lost = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line == "lost\n":
                self.is_lost.set()
            else:
                self._lines.put(line)
        self._lines.put(None)
        if MEANINGS.get(self.process.wait()) == "lost":
            # The command was killed, and could not say it.
            self.is_lost.set()

    def begun(self) -> dict[str, Any]:
        line = self._lines.get()
        if line is None:
            return self.ended()
        fence, attempt, index = line.split()
        answer: dict[str, Any] = {"is": "held", "fence": int(fence), "process": self.process.pid}
        answer.update((name, int(text)) for name, text in (("attempt", attempt), ("index", index)) if text != "-")
        return answer

    def ended(self) -> dict[str, Any]:
        """Waits for the end, and returns what `dsync` said of it."""
        assert self.process.stderr is not None
        text = self.process.stderr.read()
        status = self.process.wait()
        if status == 0:
            return {"is": "done"}
        few = re.search(r"(\d+) of (\d+) replicas have confirmed", text)
        if few is not None:
            return {"is": "not confirmed", "have": int(few[1]), "wanted": int(few[2]), "text": text}
        return {"is": MEANINGS.get(status, "error"), "text": text}

    def end(self, status: int) -> dict[str, Any]:
        """Has the command end with this status."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(f"{status}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # It was stopped: the hold is lost.
        return self.ended()


def obey(order: dict[str, Any]) -> dict[str, Any]:
    what = order["do"]
    if what == "connect":
        addresses = [f"127.0.0.1:{port}" for port in order["ports"]]
        login = LOGIN
        if order["mode"] == "sentinel":
            login = {**LOGIN, **LOGIN_AT_SENTINELS}
            server[:] = ["--master", "locks", "--sentinel", ",".join(addresses)]
        else:
            server[:] = [word for address in addresses for word in ("--url", f"redis://{address}")]
            server.extend(["--cluster"] * (order["mode"] == "cluster"))
        for name, option in login.items():
            if order.get(name) is not None:
                server.extend([option, order[name]])
        return {"is": "connected"}
    if what in ("locked", "holders"):
        return {"is": "cannot", "why": "`dsync ls` shows who holds"}
    if what == "once":
        return {"is": "cannot", "why": "a command has no value"}
    run = held[order["as"]]
    if what == "acquire":
        return run.begun()
    if what == "give_up":
        run.process.send_signal(signal.SIGINT)
        return {"is": "cancelled"}
    if what == "until_lost":
        return {"is": "lost" if run.is_lost.wait(order["ms"] / 1000) else "held"}
    if what == "look":
        return {"is": "lost" if run.is_lost.is_set() else "held"}
    if what == "show":
        with open(f"/proc/{run.process.pid}/cmdline") as line:
            return {"is": "shown", "text": line.read()}
    if what == "renew":
        return {"is": "cannot", "why": "a command has no say in that"}
    if what == "forget":
        return {"is": "cannot", "why": "a process holds for as long as it runs"}
    if what == "fail":
        return {"is": "cannot", "why": "the command says so by its exit status, and a loss stops it"}
    if what == "done" and len(order["result"]) > 10_000:
        return {"is": "cannot", "why": "it keeps no result"}
    del held[order["as"]]
    answer = run.end(0)
    if answer["is"] != "done":
        return answer
    return {"is": "done", "kept": None} if what == "done" else {"is": "released"}


def answer(order: dict[str, Any]) -> None:
    try:
        said = obey(order)
    except Exception as error:  # The runner shows it.
        said = {"is": "error", "text": f"{type(error).__name__}: {error}"}
    with speaking:
        print(json.dumps({"id": order["id"], **said}), flush=True)


# Where the suite runs in the background SIGINT is ignored, and `dsync run` leaves it so.
signal.signal(signal.SIGINT, signal.SIG_DFL)
for line in sys.stdin:
    order = json.loads(line)
    if order["do"] == "acquire":
        held[order["as"]] = Run(order)
    threading.Thread(target=answer, args=(order,), daemon=True).start()
