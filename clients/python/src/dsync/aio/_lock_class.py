"""What is behind :mod:`dsync.aio.redis_lock` and :mod:`dsync.aio.valkey_lock`."""

from __future__ import annotations

from typing import Any, ClassVar, Optional, Type

from .. import _lock_words, _protocol
from .._lock_words import OtherType
from .._protocol import Request
from .._steps import Grant, Result, Script
from ._talk import run


class LockClass:
    """Overrides of a library's ``Lock``, which stays the base of the class: its other methods are used as they are."""

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
        raise NotImplementedError

    @property
    def fence(self) -> Optional[int]:
        """The fence of the hold, which the resource can check; ``None`` if this object holds nothing."""
        return getattr(self.local, "fence", None) if self.local.token is not None else None

    def register_scripts(self) -> None:
        """There are none."""

    async def acquire(
        self,
        blocking: Optional[bool] = None,
        blocking_timeout: Optional[float] = None,
        token: Any = None,
    ) -> bool:
        """Takes the lock, and returns whether it did. Nobody polls, so the object's ``sleep`` is ignored."""
        is_given = token is not None
        if token is None:
            token = _protocol.new_token()
        token = self._client.get_encoder().encode(token)
        blocking = self.blocking if blocking is None else blocking
        wait = self.blocking_timeout if blocking_timeout is None else blocking_timeout
        try:
            acquiring = _lock_words.acquire(self._request(token), wait if blocking else 0, is_given)
            outcome = await self._run(acquiring)
        except OtherType as error:
            raise self._told(self._error, f"{self.name!r} is no dsync lock: {error}") from error
        if not isinstance(outcome, Grant):
            return False
        # The hold may have been lost and regained while it was waited for, with another token.
        self.local.token = self._client.get_encoder().encode(outcome.request.token)
        self.local.fence = outcome.fence
        return True

    async def locked(self) -> bool:
        """Returns whether anybody holds the lock."""
        try:
            return await self._run(_lock_words.holders(self._request(""))) > 0
        except OtherType:
            return True

    async def owned(self) -> bool:
        """Returns whether this object holds the lock."""
        token = self.local.token
        return token is not None and await self._run(_lock_words.left(self._request(token))) > 0

    async def do_release(self, expected_token: Any) -> None:
        if not await self._run(_lock_words.release(self._request(expected_token))):
            raise self._told(self._not_owned, "Cannot release a lock that's no longer owned")

    async def do_extend(self, additional_time: float, replace_ttl: bool) -> Any:
        asked = self._request(self.local.token)
        if not await self._run(_lock_words.renew(asked, additional_time, adds=not replace_ttl)):
            raise self._told(self._not_owned, "Cannot extend a lock that's no longer owned")
        return True

    async def do_reacquire(self) -> Any:
        assert self.timeout is not None, "reacquire() has refused a lock without timeout"
        if not await self._run(_lock_words.renew(self._request(self.local.token), self.timeout, adds=False)):
            raise self._told(self._not_owned, "Cannot reacquire a lock that's no longer owned")
        return True

    def _told(self, kind: Type[Exception], message: str) -> Exception:
        return _lock_words.lock_error(kind, message, self.name)

    def _request(self, token: Any) -> Request:
        return _lock_words.request(self.name, token, self.timeout)

    async def _run(self, script: Script[Result]) -> Result:
        return await run(script, self._client, self.name)
