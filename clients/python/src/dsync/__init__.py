"""Locks, fair semaphores, wait groups and work-once keys of the dsync server module, for redis-py and valkey-py.

    from dsync import lock

    with lock(redis.Redis(), "jobs:1", lease=30) as hold:
        work(fence=hold.fence)

:mod:`dsync.aio` has the same for asyncio, and :mod:`dsync.redis_lock` a class for ``Redis.lock(lock_class=…)``.
"""

from ._claim import Run
from ._settings import Settings
from ._source import Client
from ._sync._claims import Claim, Group, Semaphore, all_of, group, lock, once, semaphore
from ._sync._hold import Hold
from .errors import DsyncError, Holder, HoldLost, NotAcquired, NotConfirmed, WorkFailed

__version__ = "0.5.0"

__all__ = [
    "Claim",
    "Client",
    "DsyncError",
    "Group",
    "Hold",
    "HoldLost",
    "Holder",
    "NotAcquired",
    "NotConfirmed",
    "Run",
    "Semaphore",
    "Settings",
    "WorkFailed",
    "all_of",
    "group",
    "lock",
    "once",
    "semaphore",
]
