"""What is behind :mod:`dsync.redis_lock` and :mod:`dsync.valkey_lock`."""

from __future__ import annotations

from typing import Any, Optional

from .._lock_words import LockWords
from ._threads import run


class LockClass(LockWords):
    def acquire(
        self,
        sleep: Optional[float] = None,
        blocking: Optional[bool] = None,
        blocking_timeout: Optional[float] = None,
        token: Any = None,
    ) -> bool:
        """Takes the lock, and returns whether it did. ``sleep`` is ignored, because nobody polls."""
        return run(self._acquiring, self._client, self.name, blocking, blocking_timeout, token)

    def locked(self) -> bool:
        """Returns whether anybody holds the lock."""
        return run(self._locked, self._client, self.name)

    def owned(self) -> bool:
        """Returns whether this object holds the lock."""
        return run(self._owned, self._client, self.name)

    def do_release(self, expected_token: Any) -> None:
        run(self._releasing, self._client, self.name, expected_token)

    def do_extend(self, additional_time: float, replace_ttl: bool) -> Any:
        return run(self._renewing, self._client, self.name, additional_time, not replace_ttl, "extend")

    def do_reacquire(self) -> Any:
        return run(self._renewing, self._client, self.name, self.timeout, False, "reacquire")
