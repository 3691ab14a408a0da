"""The same as :mod:`dsync` for asyncio: ``redis.asyncio.Redis``, ``valkey.asyncio.Valkey`` and their clusters.

When a hold is lost, the task of its block is cancelled, and the block raises :class:`~dsync.HoldLost`: no work goes on
behind the back of the next holder.
"""

from .._claim import Run
from .._settings import Settings
from .._source import AsyncClient as Client
from ..errors import DsyncError, Holder, HoldLost, NotAcquired, NotConfirmed, WorkFailed
from ._claims import Claim, Group, Semaphore, all_of, group, lock, once, semaphore
from ._hold import Hold

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
