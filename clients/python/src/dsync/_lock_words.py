"""What the classes for ``lock_class=`` have in common: dsync's requests behind the interface of redis-py's ``Lock``.

They differ from the original in that waiters are served in the order of their arrival and do not poll, so ``sleep`` is
ignored, and in that a lock without ``timeout`` has a lease of a day, because dsync holds nothing for ever. As in the
original nothing is renewed in the background.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, ClassVar, Coroutine, Optional, Type, TypeVar

from . import _protocol, _steps
from ._lease import now
from ._protocol import LOCK, Request, milliseconds
from ._settings import Settings
from ._steps import Grant, Outcome

if TYPE_CHECKING:
    from ._performer import Talk

Result = TypeVar("Result")

#: Seconds of the lease of a lock without ``timeout``: the longest that the server allows by default.
NO_TIMEOUT = 86_400.0
#: Seconds between two looks at a token that the caller gave and that holds the lock already.
POLL = 0.1


class OtherType(Exception):
    """The key holds a value of another type: a lock that was made with SET, for example."""


class LockWords:
    """Overrides of a library's ``Lock``, which stays the base of the class, as scripts: its other methods are used."""

    _error: ClassVar[Type[Exception]]
    _not_owned: ClassVar[Type[Exception]]

    # Attributes of the base.
    name: Any
    timeout: Optional[float]
    blocking: bool
    blocking_timeout: Optional[float]
    local: Any

    @property
    def _client(self) -> Any:
        found = vars(self)
        return found["redis"] if "redis" in found else found["valkey"]

    @property
    def fence(self) -> Optional[int]:
        """The fence of the hold, which the resource can check; ``None`` if this object holds nothing."""
        return getattr(self.local, "fence", None) if self.local.token is not None else None

    def register_scripts(self) -> None:
        """There are none."""

    async def _acquiring(self, talk: Talk, blocking: Optional[bool], wait: Optional[float], token: Any) -> bool:
        encode = self._client.get_encoder().encode
        asked = self._request(encode(_protocol.new_token() if token is None else token))
        blocking = self.blocking if blocking is None else blocking
        wait = (self.blocking_timeout if wait is None else wait) if blocking else 0
        try:
            outcome = await _acquire(talk, asked, wait, token is not None)
        except OtherType as error:
            raise self._told(self._error, f"{self.name!r} is no dsync lock: {error}") from error
        if not isinstance(outcome, Grant):
            return False
        # The hold may have been lost and regained while it was waited for, with another token.
        self.local.token = encode(outcome.request.token)
        self.local.fence = outcome.fence
        return True

    async def _locked(self, talk: Talk) -> bool:
        asked = self._request("")
        try:
            info = await _own_type(_steps.ask(talk, asked.info(), asked.key, Settings.retry_for))
        except OtherType:
            return True
        return len(_protocol.state_and_holders(info)[1]) > 0

    async def _owned(self, talk: Talk) -> bool:
        token = self.local.token
        return token is not None and (await _left(talk, self._request(token))) > 0

    async def _releasing(self, talk: Talk, token: Any) -> None:
        asked = self._request(token)
        # A lock without `timeout` does not keep its caller a day.
        retry_for = Settings.retry_for if asked.lease == NO_TIMEOUT else _steps.lives_for(asked.lease)
        if not await _steps.finish(talk, asked, "RELEASE", retry_for=retry_for):
            raise self._told(self._not_owned, "Cannot release a lock that's no longer owned")

    async def _renewing(self, talk: Talk, seconds: Optional[float], adds: bool, what: str) -> bool:
        """Sets the lease to so many seconds, or adds them to what is left."""
        assert seconds is not None, "the library has refused a lock without timeout"
        asked = self._request(self.local.token)
        still = (await _left(talk, asked)) if adds else 0
        is_renewed = False
        if still or not adds:
            words = asked.verb("RENEW", "PX", milliseconds(seconds) + still)
            with contextlib.suppress(OtherType):
                is_renewed = bool(await _own_type(_steps.ask(talk, words, asked.key, Settings.retry_for)))
        if not is_renewed:
            raise self._told(self._not_owned, f"Cannot {what} a lock that's no longer owned")
        return True

    def _request(self, token: Any) -> Request:
        return Request(LOCK, self.name, token, self.timeout or NO_TIMEOUT, _protocol.default_owner())

    def _told(self, kind: Type[Exception], message: str) -> Exception:
        """Returns an error of the library's own class; not all versions take the name of the lock."""
        error = kind(message)
        error.lock_name = self.name  # type: ignore[attr-defined]
        return error


async def _acquire(talk: Talk, asked: Request, wait: Optional[float], token_is_given: bool) -> Outcome:
    if token_is_given:
        deadline = None if wait is None else now() + wait
        if not await _until_not_held(talk, asked, deadline):
            return None
        wait = None if deadline is None else deadline - now()
    return await _own_type(_steps.acquire(talk, asked, Settings(wait=None if wait is None else max(0.0, wait))))


async def _until_not_held(talk: Talk, asked: Request, deadline: Optional[float]) -> bool:
    """Waits until the token holds nothing: for the server the request of another would be the same one once more."""
    while await _left(talk, asked):
        pause = POLL if deadline is None else min(POLL, deadline - now())
        if pause <= 0:
            return False
        await talk.pause(pause)
    return True


async def _left(talk: Talk, asked: Request) -> int:
    """Returns the milliseconds of lease that are left, 0 if the token holds nothing."""
    try:
        return int(await _own_type(_steps.ask(talk, asked.verb("CHECK"), asked.key, Settings.retry_for)))
    except OtherType:
        return 0


async def _own_type(script: Coroutine[Any, Any, Result]) -> Result:
    try:
        return await script
    except Exception as error:
        if "WRONGTYPE" in str(error):
            raise OtherType(str(error)) from error
        raise
