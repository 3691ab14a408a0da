"""The same as :mod:`dsync.redis_lock` for valkey-py: ``lock_class=dsync.valkey_lock.Lock``."""

from valkey.lock import Lock as _Lock

from ._sync._lock_class import LockClass


class Lock(LockClass, _Lock):
    """``valkey.lock.Lock`` with dsync behind it; see :mod:`dsync._lock_words` for what differs."""
