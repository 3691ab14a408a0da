"""A drop-in for valkey-py's own ``Lock``, so that existing code changes one line::

    valkey.asyncio.Valkey.lock(client, "jobs:1", timeout=30, lock_class=dsync.aio.valkey_lock.Lock)

Its errors are those of valkey-py, ``valkey.exceptions.LockError`` and ``LockNotOwnedError``.
"""

from valkey.asyncio.lock import Lock as _Lock

from ._lock_class import LockClass


class Lock(LockClass, _Lock):
    """``valkey.asyncio.lock.Lock`` with dsync behind it; see :mod:`dsync._lock_words` for what differs."""
