"""What the classes for ``lock_class=`` have in common: dsync's requests behind the interface of redis-py's ``Lock``.

They differ from the original in that waiters are served in the order of their arrival and do not poll, so ``sleep`` is
ignored, and in that a lock without ``timeout`` has a lease of a day, because dsync holds nothing for ever. As in the
original nothing is renewed in the background.
"""

from __future__ import annotations

from typing import Any, Optional, Type

from . import _protocol, _steps
from ._lease import now
from ._protocol import LOCK, Request, milliseconds
from ._settings import Settings
from ._steps import Outcome, Pause, Script, Waits

#: Seconds of the lease of a lock without ``timeout``: the longest that the server allows by default.
NO_TIMEOUT = 86_400.0
#: Seconds between two looks at a token that the caller gave and that holds the lock already.
POLL = 0.1


class OtherType(Exception):
    """The key holds a value of another type: a lock that was made with SET, for example."""


def request(name: Any, token: Any, timeout: Optional[float]) -> Request:
    return Request(LOCK, name, token, timeout or NO_TIMEOUT, _protocol.default_owner())


def acquire(asked: Request, wait: Optional[float], token_is_given: bool) -> Script[Outcome]:
    if token_is_given:
        deadline = None if wait is None else now() + wait
        if not (yield from _until_not_held(asked, deadline)):
            return None
        wait = None if deadline is None else max(0.0, deadline - now())
    script = _steps.acquire(asked, Waits(wait, own_connection=True, retry_for=Settings.retry_for))
    outcome: Outcome = yield from _own_type(script)
    return outcome


def _until_not_held(asked: Request, deadline: Optional[float]) -> Script[bool]:
    """Waits until the token holds nothing: for the server the request of another would be the same one once more."""
    while (yield from left(asked)):
        pause = POLL if deadline is None else min(POLL, deadline - now())
        if pause <= 0:
            return False
        yield Pause(pause)
    return True


def holders(asked: Request) -> Script[int]:
    """Returns how many hold the lock."""
    info = yield from _own_type(_steps.ask(asked.info(), asked.key, Settings.retry_for))
    return len(_protocol.state_and_holders(info)[1])


def left(asked: Request) -> Script[int]:
    """Returns the milliseconds of lease that are left, 0 if the token holds nothing."""
    try:
        return int((yield from _own_type(_steps.ask(asked.verb("CHECK"), asked.key, Settings.retry_for))))
    except OtherType:
        return 0


def release(asked: Request) -> Script[bool]:
    try:
        ended = yield from _own_type(_steps.finish(asked.verb("RELEASE"), asked.key, _patience(asked)))
        return bool(ended.is_ended)
    except OtherType:
        return False


def _patience(asked: Request) -> float:
    """Returns for how many seconds a release is repeated: a lock without ``timeout`` does not keep its caller a day."""
    return Settings.retry_for if asked.lease == NO_TIMEOUT else _steps.lives_for(asked.lease)


def renew(asked: Request, seconds: float, adds: bool) -> Script[bool]:
    """Sets the lease to so many seconds, or adds them to what is left. Returns whether the token holds the lock."""
    lease = milliseconds(seconds)
    if adds:
        still = yield from left(asked)
        if not still:
            return False
        lease += still
    words = asked.verb("RENEW", "PX", lease)
    try:
        return bool((yield from _own_type(_steps.ask(words, asked.key, Settings.retry_for))))
    except OtherType:
        return False


def _own_type(script: Script[Any]) -> Script[Any]:
    try:
        return (yield from script)
    except Exception as error:
        if "WRONGTYPE" in str(error):
            raise OtherType(str(error)) from error
        raise


def lock_error(kind: Type[Exception], message: str, name: Any) -> Exception:
    """Returns an error of the library's own class; not all versions take the name of the lock."""
    error = kind(message)
    error.lock_name = name  # type: ignore[attr-defined]
    return error
