"""What is behind :mod:`dsync.aio.redis_lock` and :mod:`dsync.aio.valkey_lock`."""

from __future__ import annotations

from typing import Any, Optional

from .._lock_words import LockWords
from ._tasks import Runs


class LockClass(Runs, LockWords):
    async def acquire(
        self,
        blocking: Optional[bool] = None,
        blocking_timeout: Optional[float] = None,
        token: Any = None,
    ) -> bool:
        """Takes the lock, and returns whether it did. Nobody polls, so the object's ``sleep`` is ignored."""
        return await self._run(self._acquiring, blocking, blocking_timeout, token)
