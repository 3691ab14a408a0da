"""Which errors pass, and how long to go on asking.

Repeating a request is safe, because its token tells the server that it is the same one.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Optional

from ._lease import now

log = logging.getLogger("dsync")

#: The pauses between two attempts double from the first to the longest. Seconds.
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0

# Replies of a server that is in the way at the moment; another attempt, perhaps on another server, can succeed.
_CODES = (
    "UNBLOCKED",
    "MOVED",
    "ASK",
    "READONLY",
    "TRYAGAIN",
    "CLUSTERDOWN",
    "LOADING",
    "MASTERDOWN",
    "NOREPLICAS",
    "MISCONF",
    # redis-py words it like this when no node of a cluster answers.
    "Redis Cluster cannot be connected",
)

# redis-py and valkey-py have the same names for their classes, and cut the code off the message of some.
_PASSING = {
    "ConnectionError",
    "TimeoutError",
    "OSError",
    "AskError",
    "MovedError",
    "ReadOnlyError",
    "TryAgainError",
    "ClusterDownError",
    "MasterDownError",
    "MasterNotFoundError",
    "SlotNotCoveredError",
    "BusyLoadingError",
}

# These are connection errors by inheritance, but no repetition mends them.
_LASTING = {"AuthenticationError", "AuthenticationWrongNumberOfArgsError", "AuthorizationError"}


def passes(error: BaseException) -> bool:
    """Returns whether another attempt can succeed."""
    names = {kind.__name__ for kind in type(error).__mro__}
    if names & _LASTING:
        return False
    # On Python 3.9 and 3.10 asyncio has a class of its own.
    return bool(names & _PASSING) or isinstance(error, asyncio.TimeoutError) or str(error).startswith(_CODES)


class Patience:
    """How long one caller goes on asking a server that cannot be reached."""

    def __init__(self, key: str, retry_for: float, deadline: Optional[float] = None) -> None:
        self._key = key
        self._retry_for = retry_for
        self._deadline = deadline
        self._failing_since: Optional[float] = None
        self._pause = FIRST_PAUSE

    def answered(self) -> None:
        """Notes that the server has answered, so that the next failure counts afresh."""
        self._failing_since = None
        self._pause = FIRST_PAUSE

    def pause_after(self, error: Exception) -> float:
        """Returns the seconds until the next attempt. Raises ``error`` if it lasts, or if the time is over."""
        if not passes(error):
            raise error
        moment = now()
        if self._failing_since is None:
            self._failing_since = moment
            log.info("asking for %r again: %s", self._key, error)
        give_up_at = self._failing_since + self._retry_for
        if self._deadline is not None:
            give_up_at = min(give_up_at, self._deadline)
        if moment >= give_up_at:
            raise error
        pause = self._pause * random.uniform(0.5, 1.0)
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        return min(pause, give_up_at - moment)
