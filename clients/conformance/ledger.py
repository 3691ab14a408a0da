"""What a fleet (soak.py) has said of its holds, and what of it cannot be."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import NamedTuple

from driver import Answer

#: Of the semaphores.
LIMIT = 2


class Claim(NamedTuple):
    key: str
    worker: str
    fence: int
    asked: float
    granted: float
    until: float


class Ledger:
    """What the fleet has said, and what of it cannot be."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._claims: dict[str, list[Claim]] = {}
        self._done: dict[str, float] = {}
        self.operations = 0
        self.answers: Counter[str] = Counter()
        self.violations: list[str] = []

    def count(self, answer: Answer) -> None:
        with self._lock:
            self.operations += 1
            self.answers[answer["is"]] += 1

    def claim(self, claim: Claim) -> None:
        with self._lock:
            self._claims.setdefault(claim.key, []).append(claim)

    def done(self, key: str) -> None:
        """The server has answered that the work is done."""
        with self._lock:
            self._done.setdefault(key, time.monotonic())

    def wrong(self, what: str) -> None:
        with self._lock:
            self.violations.append(what)

    def judge(self) -> None:
        for key, claims in self._claims.items():
            claims.sort(key=lambda claim: claim.granted)
            most = LIMIT if key.startswith("permits") else 1
            for number, later in enumerate(claims):
                earlier = claims[:number]
                # What was claimed to the end of a moment is no overlap with what begins then.
                held = [claim for claim in earlier if claim.until > later.granted]
                if len(held) >= most:
                    self.wrong(f"{key}: {later} while {held}")
                passed = [claim for claim in earlier if claim.granted < later.asked and claim.fence >= later.fence]
                if passed:
                    self.wrong(f"{key}: {later} has no higher fence than {passed[-1]}")
                if later.asked > self._done.get(key, later.asked):
                    self.wrong(f"{key}: {later} begins what was done at {self._done[key]}")
