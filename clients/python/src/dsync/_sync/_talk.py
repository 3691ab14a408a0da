"""Performs the steps of a script with a synchronous client."""

from __future__ import annotations

import threading
import time
from typing import Any, Optional

from .. import _route
from .._confirm import Part
from .._steps import LONGEST_TRY, Ask, AskAll, Block, Pause, Result, Script, Step, Turn, Watch
from ._lines import Line, lines_of
from ._turns import Watch as Watching
from ._turns import turns_of


def run(script: Script[Result], client: Any, key: str, changed: Optional[threading.Event] = None) -> Result:
    """Runs a script to its end. Pauses end early when ``changed`` is set."""
    talk = _Talk(client, key, changed)
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

    def __init__(self, client: Any, key: str, changed: Optional[threading.Event]) -> None:
        self._client = client
        self._lines = lines_of(client)
        self._route = self._lines.route
        self._key = key
        self._changed = changed
        self._blocking: Optional[Line] = None
        self._watching: Optional[Watching] = None

    def perform(self, step: Step) -> Any:
        if isinstance(step, Ask):
            return self._lines.perform(_route.ask(self._route, self._key, step.words, step.within, step.confirm))
        if isinstance(step, AskAll):
            return self._lines.perform(_route.ask_all(self._route, step.requests, step.within))
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
            line = Line(self._lines.perform(_route.find(self._route, self._key, LONGEST_TRY)), LONGEST_TRY)
        try:
            part = Part([step.words], step.confirm)
            line.ask([part], step.seconds + LONGEST_TRY)
            [reply] = part.replies
            if isinstance(reply, Exception):
                raise reply
        except BaseException as error:
            line.close()
            if isinstance(error, Exception):
                self._route.blame(line.source, error, self._key)
            raise
        self._blocking = line
        return reply

    def _pause(self, seconds: float) -> None:
        if self._changed is None:
            time.sleep(seconds)
        else:
            self._changed.wait(seconds)
            self._changed.clear()

    def _watch(self, channel: str) -> None:
        if self._watching is not None:
            self._watching.end()
            self._watching = None
        source = self._lines.perform(_route.find(self._route, self._key, LONGEST_TRY))
        try:
            self._watching = turns_of(self._client).watch(source, channel)
        except Exception as error:
            self._route.blame(source, error, self._key)
            raise
