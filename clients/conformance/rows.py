"""A row of the table: what happens, and what a helper must answer. A row gets a lab, and asserts.

`row(modes)` says where a row is played: on one server, with a replica, behind Sentinel, in a cluster. A driver that
cannot do what a row needs answers `cannot` and why.
"""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import Future
from typing import Any, Callable, NamedTuple, Optional

from servers import SOON, Server, eventually

from driver import Answer, Cannot, Driver
from lab import Lab


class Row(NamedTuple):
    name: str
    mode: str
    play: Callable[[Lab], None]


ROWS: list[Row] = []


def row(*modes: str) -> Callable[[Callable[[Lab], None]], Callable[[Lab], None]]:
    def add(play: Callable[[Lab], None]) -> Callable[[Lab], None]:
        name = play.__name__.replace("_", " ")
        ROWS.extend(Row(name, mode, play) for mode in modes)
        return play

    return add


def is_(answer: Answer, expected: str) -> Answer:
    if answer["is"] == "cannot":
        raise Cannot(answer["why"])
    assert answer["is"] == expected, f"{expected} expected, {answer}"
    return answer


def hold(lab: Lab, key: str = "k", *, family: str = "lock", lease: int = 6_000, **words: Any) -> Answer:
    """The driver holds the key from now on, as `h`."""
    words = {"wait": None, "limit": 1, **words}
    return is_(lab.driver.ask("acquire", family=family, key=key, lease=lease, **{"as": "h"}, **words), "held")


def wait_for(lab: Lab, driver: Driver, key: str, name: str = "w", lease: int = 30_000) -> Future[Answer]:
    """The driver waits for the key from now on; another one holds it."""
    others = lab.waiters(key)
    answer = driver.begin("acquire", family="lock", key=key, lease=lease, wait=None, limit=1, **{"as": name})
    eventually(lambda: lab.waiters(key) > others or answer.done(), "a waiter more")
    assert not answer.done(), answer.result()
    return answer


def first_holder(lab: Lab, key: str, server: Optional[Server] = None) -> dict[str, Any]:
    fields = lab.info(key, server)["first-holders"][0]
    return dict(zip(fields[::2], fields[1::2]))


def record(lab: Lab, result: str = "r") -> Future[Answer]:
    """The work of `h` is done from now on, with this result, unless the driver answers what it has `kept`."""
    return lab.driver.begin("done", result=result, **{"as": "h"})


def is_recorded(done: Future[Answer], lab: Lab, key: str, server: Optional[Server] = None, result: str = "r") -> None:
    kept = is_(done.result(timeout=SOON), "done").get("kept", result)
    assert lab.ask("DONCE.GET", key, server=server)[1] == kept


def told(lab: Lab, within: float) -> None:
    """The loss is told within so many seconds, and from then on the hold is not called held."""
    is_(lab.driver.ask("until_lost", ms=int(within * 1000), **{"as": "h"}), "lost")
    is_(lab.driver.ask("look", **{"as": "h"}), "lost")


def other_hold_lives_on(lab: Lab, **words: Any) -> None:
    """Of two holds that are renewed in one write, one has a key of another type by then."""
    ended = f"{{{lab.key}}}ended"
    hold(lab, lab.key, lease=9_000, **words)
    words = {"family": "lock", "key": ended, "lease": 9_000, "wait": None, **words}
    is_(lab.driver.ask("acquire", **{"as": "ended"}, **words), "held")
    lab.ask("SET", ended, "1")
    # Both are due when it goes on.
    os.kill(lab.driver.pid, signal.SIGSTOP)
    time.sleep(4)
    os.kill(lab.driver.pid, signal.SIGCONT)
    is_(lab.driver.ask("until_lost", ms=3_000, **{"as": "ended"}), "lost")
    # Longer than its lease was when it went on.
    is_(lab.driver.ask("until_lost", ms=6_000, **{"as": "h"}), "held")
    is_(lab.driver.ask("release", **{"as": "h"}), "released")
