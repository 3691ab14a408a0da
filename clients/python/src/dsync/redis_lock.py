"""A drop-in for redis-py's own ``Lock``, so that existing code changes one line::

    redis.Redis.lock(client, "jobs:1", timeout=30, lock_class=dsync.redis_lock.Lock)

Its errors are those of redis-py, ``redis.exceptions.LockError`` and ``LockNotOwnedError``.
"""

from redis.lock import Lock as _Lock

from ._sync._lock_class import LockClass


class Lock(LockClass, _Lock):
    """``redis.lock.Lock`` with dsync behind it; see :mod:`dsync._lock_words` for what differs."""
