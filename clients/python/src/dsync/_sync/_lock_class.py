"""What is behind :mod:`dsync.redis_lock` and :mod:`dsync.valkey_lock`."""

from __future__ import annotations

from typing import Any, Optional

from .._lock_words import LockWords
from ._threads import Runs


class LockClass(Runs, LockWords):
    def acquire(
        self,
        sleep: Optional[float] = None,
        blocking: Optional[bool] = None,
        blocking_timeout: Optional[float] = None,
        token: Any = None,
    ) -> bool:
        """Takes the lock, and returns whether it did. ``sleep`` is ignored, because nobody polls."""
        return self._run(self._acquiring, blocking, blocking_timeout, token)
