"""Performs scripts without a server: the clock and the replies are the test's."""

from typing import Any, Iterator, List, Optional, Tuple, Union

import pytest

from dsync import _lease, _renewals, _retry, _steps
from dsync._protocol import LOCK, Request
from dsync._steps import Ask, AskAll, Block, Pause, Script, Turn, Watch

REQUEST = Request(LOCK, "k", "t", lease=9.0, owner=None)
QUEUED = [b"WAITING", 1, b"dsync:{k}:1"]
GRANTED = [b"t", 7]
GONE = ConnectionError("gone")

#: What the server does with a step: a reply, an error, and how many seconds it takes.
Reply = Tuple[Union[Any, BaseException], float]


class Story:
    """Performs a script: each Ask and Block takes the next reply, and only the test's clock moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.time = 1_000.0
        self.said: List[str] = []
        for module in (_lease, _retry, _renewals, _steps):
            monkeypatch.setattr(module, "now", lambda: self.time)

    def run(self, script: Script[Any], *replies: Union[Any, BaseException, Reply], stops_at: float = 9_999) -> Any:
        answers: Iterator[Any] = iter(replies)
        result: Any = None
        error: Optional[BaseException] = None
        try:
            while True:
                step = script.throw(error) if error is not None else script.send(result)
                result, error = None, None
                if isinstance(step, (Ask, Block)):
                    self.said.append(" ".join(map(str, step.words)))
                    reply = next(answers)
                    seconds = 0.0
                    if isinstance(reply, tuple):
                        reply, seconds = reply
                    self.time += seconds
                    result, error = (None, reply) if isinstance(reply, BaseException) else (reply, None)
                elif isinstance(step, AskAll):
                    if self.time >= stops_at:
                        return None
                    self.said.append(" + ".join(" ".join(map(str, part.commands[0])) for _, part in step.requests))
                    reply = next(answers)
                    if isinstance(reply, tuple):
                        reply, seconds = reply
                        self.time += seconds
                    result = reply if isinstance(reply, list) else [reply] * len(step.requests)
                elif isinstance(step, Pause):
                    self.time += step.seconds
                elif isinstance(step, Turn):
                    self.said.append(f"turn {step.seconds:g}")
                    self.time += step.seconds
                else:
                    assert isinstance(step, Watch)
                    self.said.append(f"watch {step.channel}")
        except StopIteration as end:
            return end.value

    def verbs(self) -> List[str]:
        """Returns what was said, without what is the same each time."""
        return [line.replace(" PX 9000 TOKEN t", "").replace("DLOCK.", "").replace(" k", "") for line in self.said]
