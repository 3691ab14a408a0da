"""The same as :mod:`dsync.redis_lock` for ``redis.asyncio``: ``lock_class=dsync.aio.redis_lock.Lock``."""

from redis.asyncio.lock import Lock as _Lock

from ._lock_class import LockClass


class Lock(LockClass, _Lock):
    """``redis.asyncio.lock.Lock`` with dsync behind it; see :mod:`dsync._lock_words` for what differs."""
