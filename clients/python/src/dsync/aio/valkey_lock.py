"""The same as :mod:`dsync.redis_lock` for ``valkey.asyncio``: ``lock_class=dsync.aio.valkey_lock.Lock``."""

from valkey.asyncio.lock import Lock as _Lock

from ._lock_class import LockClass


class Lock(LockClass, _Lock):
    """``valkey.asyncio.lock.Lock`` with dsync behind it; see :mod:`dsync._lock_words` for what differs."""
