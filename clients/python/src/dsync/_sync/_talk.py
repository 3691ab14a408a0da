"""Performs the steps of a script with a synchronous client."""

from __future__ import annotations

import threading
import time
from typing import Any, Optional

from .._retry import passes
from .._source import name
from .._steps import LONGEST_TRY, Ask, Block, Pause, Result, Script, Step, Turn, Watch
from ._lines import Line, lines_of
from ._turns import Watch as Watching
from ._turns import turns_of


def run(script: Script[Result], client: Any, key: str, stop: Optional[threading.Event] = None) -> Result:
    """Runs a script to its end. Pauses end early when ``stop`` is set."""
    talk = _Talk(client, key, stop)
    try:
        step = next(script)
        while True:
            try:
                result = talk.perform(step)
            except BaseException as error:  # Also KeyboardInterrupt: the script withdraws its request.
                step = script.throw(error)
            else:
                step = script.send(result)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        talk.close()


class _Talk:
    """What one script needs of the client."""

    def __init__(self, client: Any, key: str, stop: Optional[threading.Event]) -> None:
        self._client = client
        self._lines = lines_of(client)
        self._key = key
        self._stop = stop
        self._blocking: Optional[Line] = None
        self._watching: Optional[Watching] = None

    def perform(self, step: Step) -> Any:
        if isinstance(step, Ask):
            return self._lines.ask(self._key, step.words, step.within)
        if isinstance(step, Block):
            return self._block(step)
        if isinstance(step, Pause):
            return self._pause(step.seconds)
        if isinstance(step, Watch):
            return self._watch(step.channel)
        assert isinstance(step, Turn)
        assert self._watching is not None
        return self._watching.wait(step.seconds)

    def close(self) -> None:
        if self._blocking is not None:
            self._blocking.close()
        if self._watching is not None:
            self._watching.end()

    def _block(self, step: Block) -> Any:
        line, self._blocking = self._blocking, None
        if line is None:
            line = Line(self._lines.find(self._key, LONGEST_TRY), LONGEST_TRY)
        try:
            reply = line.ask(step.words, step.seconds + LONGEST_TRY)
        except Exception as error:
            # The next attempt may need another server.
            if passes(error):
                self._lines.route.doubt(line.source)
            name(error, line.source.name, repr(self._key))
            raise
        except BaseException:
            line.close()
            raise
        self._blocking = line
        return reply

    def _pause(self, seconds: float) -> bool:
        if self._stop is not None:
            return self._stop.wait(seconds)
        time.sleep(seconds)
        return False

    def _watch(self, channel: str) -> None:
        if self._watching is not None:
            self._watching.end()
            self._watching = None
        source = self._lines.find(self._key, LONGEST_TRY)
        try:
            self._watching = turns_of(self._client).watch(source, channel)
        except Exception as error:
            if passes(error):
                self._lines.route.doubt(source)
            name(error, source.name, repr(self._key))
            raise
