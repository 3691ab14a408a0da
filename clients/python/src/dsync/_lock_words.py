"""What the classes for ``lock_class=`` have in common: dsync's requests behind the interface of redis-py's ``Lock``.

They differ from the original in that waiters are served in the order of their arrival and do not poll, so ``sleep`` is
ignored, and in that a lock without ``timeout`` has a lease of a day, because dsync holds nothing for ever. As in the
original nothing is renewed in the background.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

from . import _protocol, _steps
from ._lease import now
from ._protocol import LOCK, Request, Token, Words, fields, milliseconds
from ._retry import tells_the_end
from ._settings import Settings
from ._source import library_error
from ._steps import Grant

if TYPE_CHECKING:
    from ._performer import Talk

#: Seconds of the lease of a lock without ``timeout``: the longest that the server allows by default.
NO_TIMEOUT = 86_400.0
#: Seconds between two looks at a token that the caller gave and that holds the lock already.
POLL = 0.1


class LockWords:
    """Overrides of a library's ``Lock``, which stays the base of the class, as scripts: its other methods are used."""

    # Attributes of the base.
    name: Any
    timeout: Optional[float]
    blocking: bool
    blocking_timeout: Optional[float]
    local: Any

    #: Of threads or of tasks. What it returns is awaited in asyncio, and so is what the methods here return.
    _run: Any

    @property
    def _client(self) -> Any:
        found = vars(self)
        return found["redis"] if "redis" in found else found["valkey"]

    @property
    def key(self) -> Any:
        """The name of the lock, as dsync calls it."""
        return self.name

    @property
    def fence(self) -> Optional[int]:
        """The fence of the hold, which the resource can check; ``None`` if this object holds nothing."""
        return getattr(self.local, "fence", None) if self.local.token is not None else None

    def register_scripts(self) -> None:
        """There are none."""

    def locked(self) -> Any:
        """Returns whether anybody holds the lock."""
        return self._run(self._locked)

    def owned(self) -> Any:
        """Returns whether this object holds the lock."""
        return self._run(self._owned)

    def do_release(self, expected_token: Any) -> Any:
        return self._run(self._releasing, expected_token)

    def do_extend(self, additional_time: float, replace_ttl: bool) -> Any:
        # A program that gives its own lock another script, as redbeat does, has it set the lease instead of adding.
        adds = not replace_ttl and "lua_extend" not in vars(self)
        return self._run(self._renewing, additional_time, adds, "extend")

    def do_reacquire(self) -> Any:
        return self._run(self._renewing, self.timeout, False, "reacquire")

    async def _acquiring(self, talk: Talk, blocking: Optional[bool], wait: Optional[float], token: Any) -> bool:
        encode = self._client.get_encoder().encode
        asked = self._request(_protocol.new_token() if token is None else encode(token))
        blocking = self.blocking if blocking is None else blocking
        wait = (self.blocking_timeout if wait is None else wait) if blocking else 0
        deadline = None if wait is None else now() + wait
        # For the server the request of another object with this token would be the same one once more.
        while token is not None and await self._left(talk, asked):
            pause = POLL if deadline is None else min(POLL, deadline - now())
            if pause <= 0:
                return False
            await talk.pause(pause)
        left = None if deadline is None else max(0.0, deadline - now())
        try:
            outcome = await _steps.acquire(talk, asked, Settings(wait=left))
        except Exception as error:
            if tells_the_end(error):
                raise self._told("LockError", f"{self.name!r} is no dsync lock: {error}") from error
            raise
        if not isinstance(outcome, Grant):
            return False
        # The hold may have been lost and regained while it was waited for, with another token.
        self.local.token = bytes(encode(outcome.request.token))
        self.local.fence = outcome.told.fence
        return True

    async def _locked(self, talk: Talk) -> bool:
        info = await self._ask(talk, LOCK.info(self.name, 1), {"first-holders": [self.name]})
        return bool(fields(info).get("first-holders"))

    async def _owned(self, talk: Talk) -> bool:
        token = self.local.token
        return token is not None and (await self._left(talk, self._request(token))) > 0

    async def _releasing(self, talk: Talk, token: Any) -> None:
        asked = self._request(token)
        # A lock without `timeout` does not keep its caller a day.
        retry_for = Settings.retry_for if asked.lease == NO_TIMEOUT else _steps.lives_for(asked.lease)
        if not await _steps.finish(talk, asked, "RELEASE", retry_for=retry_for):
            raise self._told("LockNotOwnedError", "Cannot release a lock that's no longer owned")

    async def _renewing(self, talk: Talk, seconds: Optional[float], adds: bool, what: str) -> bool:
        """Sets the lease to so many seconds, or adds them to what is left."""
        assert seconds is not None, "the library has refused a lock without timeout"
        asked = self._request(self.local.token)
        still = (await self._left(talk, asked)) if adds else 0
        words = asked.verb("RENEW", "PX", milliseconds(seconds) + still)
        if (adds and not still) or not int(await self._ask(talk, words, 0)):
            raise self._told("LockNotOwnedError", f"Cannot {what} a lock that's no longer owned")
        return True

    async def _left(self, talk: Talk, asked: Request) -> int:
        """Returns the milliseconds of lease that are left, 0 if the token holds nothing."""
        return int(await self._ask(talk, asked.verb("CHECK"), 0))

    async def _ask(self, talk: Talk, words: Words, of_another_type: Any) -> Any:
        """Returns the reply; the last argument if the key has another type, like that of a lock made with SET."""
        try:
            return await _steps.ask(talk, words, Settings.retry_for)
        except Exception as error:
            if tells_the_end(error):
                return of_another_type
            raise

    def _request(self, token: Any) -> Request:
        return Request(LOCK, self.name, Token(token), self.timeout or NO_TIMEOUT, _protocol.default_owner())

    def _told(self, kind: str, message: str) -> Exception:
        """Returns an error of the library's own class; not all versions take the name of the lock."""
        error = library_error(type(self), kind, message)
        error.lock_name = self.name  # type: ignore[attr-defined]
        return error
