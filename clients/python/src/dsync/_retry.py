"""Which errors pass, and how long to go on asking.

Repeating a request is safe, because its token tells the server that it is the same one.
"""

from __future__ import annotations

import logging
import random
import socket
import sys
from typing import Any, Callable, Optional, Sequence

from ._lease import now
from ._protocol import Token
from ._times import FIRST_PAUSE, LONGEST_PAUSE
from .errors import NotConfirmed

log = logging.getLogger("dsync")

# Replies of a server that is in the way at the moment; another attempt, perhaps on another server, can succeed. Where
# redis-py and valkey-py have a class for one, they cut the code off its message.
_PASSING = {
    "UNBLOCKED": None,
    "MOVED": "MovedError",
    "ASK": "AskError",
    "READONLY": "ReadOnlyError",
    "TRYAGAIN": "TryAgainError",
    "CLUSTERDOWN": "ClusterDownError",
    "LOADING": "BusyLoadingError",
    "MASTERDOWN": "MasterDownError",
    "NOREPLICAS": None,
    "MISCONF": None,
    "BUSY": None,
    "OOM": "OutOfMemoryError",
}

# What UNBLOCKED says to a request that is over: its token was withdrawn, or is used by another.
_OVER = ("released", "superseded")

# These are connection errors by inheritance, but no repetition mends them.
_LASTING = ("AuthenticationError", "AuthenticationWrongNumberOfArgsError", "AuthorizationError")


def passes(error: BaseException) -> bool:
    """Returns whether another attempt can succeed.

    It goes by the classes of the libraries, not by their names: a TimeoutError that a program raises in its handler of
    a signal is meant to end the wait.
    """
    noted: Optional[bool] = getattr(error, "may_pass", None)
    if noted is not None:
        return noted
    # A look-up of a name can fail for a moment.
    if isinstance(error, (ConnectionError, socket.gaierror, NotConfirmed)):
        return True
    if _is_one_of(error, *_LASTING):
        return False
    is_full = "max number of clients" in str(error)
    if is_full or concerns_the_connection(error) or _is_one_of(error, *filter(None, _PASSING.values())):
        return True
    if not is_reply(error):
        return False
    code, _, message = str(error).partition(" ")
    return code in _PASSING and not (code == "UNBLOCKED" and message.startswith(_OVER))


def is_reply(error: BaseException) -> bool:
    """Returns whether a server has answered so, and nothing is wrong with the connection."""
    return _is_one_of(error, "ResponseError")


def note(error: BaseException, **marks: bool) -> None:
    """Notes what its class does not tell: ``may_pass``, or ``is_unsent`` if it came before the command was sent."""
    vars(error).update(marks)


def is_of_the_program(error: BaseException) -> bool:
    """Returns whether it comes neither from a server nor from a connection."""
    return not (passes(error) or is_reply(error) or concerns_the_connection(error))


def refuses_the_certificate(error: BaseException) -> bool:
    """Returns whether the certificate of the server was not accepted; the libraries make a ConnectionError of that."""
    refusal = getattr(sys.modules.get("ssl"), "SSLCertVerificationError", ())
    return isinstance(error.__cause__ or error.__context__, refusal)


def is_unsent(error: BaseException) -> bool:
    return getattr(error, "is_unsent", False)


def is_in_doubt(error: BaseException) -> bool:
    """Returns whether the command may have been carried out: it was sent, and not refused."""
    return not (is_unsent(error) or is_reply(error) or _is_one_of(error, "BusyLoadingError", *_LASTING))


def passes_for_a_hold(error: BaseException) -> bool:
    """Returns whether another attempt to end a hold can succeed.

    What is refused before the server looks at the command is no answer to it: a greeting, or a password or a
    certificate that is being rotated.
    """
    if is_of_the_program(error):
        return False
    return passes(error) or is_unsent(error) or _is_one_of(error, *_LASTING[:2])


def concerns_the_connection(error: BaseException) -> bool:
    return isinstance(error, ConnectionError) or _is_one_of(error, "ConnectionError", "TimeoutError")


#: What an error of the server says, and what a caller of this package needs to hear besides.
_HINTS = {"NOLIMIT": "give `limit=`"}


def explain(error: Exception, words: Sequence[Any]) -> None:
    """Has a reply to this command say what to do, and leaves out the token, which the server may have repeated."""
    message = str(error)
    if "unknown command" in message and "." in words[0]:
        # It goes on with the arguments, the last of which is cut.
        message = f"this server has not loaded the dsync module, or an old version of it: it does not know {words[0]}"
    for word in words:
        if isinstance(word, Token):
            message = message.replace(word.decode(errors="replace"), repr(word))
    hint = _HINTS.get(message.partition(" ")[0])
    message = message if hint is None else f"{message}: {hint}"
    if message != str(error):
        error.args = (message,)


def redirection(error: BaseException) -> Optional[tuple[int, str, int, bool]]:
    """Returns where MOVED or ASK says that a request should go: slot, host, port, and whether it is MOVED."""
    if _is_one_of(error, "AskError"):
        told: Any = error
        return int(told.slot_id), told.host, int(told.port), _is_one_of(error, "MovedError")
    # Not all parsers of the libraries have classes for these replies.
    words = str(error).split(" ") if is_reply(error) else []
    if len(words) < 3 or words[0] not in ("MOVED", "ASK"):
        return None
    host, _, port = words[2].rpartition(":")
    return int(words[1]), host, int(port), words[0] == "MOVED"


def _is_one_of(error: BaseException, *names: str) -> bool:
    """Returns whether the error is of one of these classes, in either library. Not all versions have them all."""
    for library in ("redis", "valkey"):
        exceptions = sys.modules.get(f"{library}.exceptions")
        found = (getattr(exceptions, name, None) for name in names)
        if isinstance(error, tuple(kind for kind in found if kind is not None)):
            return True
    return False


def tells_the_end(error: BaseException) -> bool:
    """Returns whether this answer to a renewal says that there is no hold: the key has a value of another type."""
    return str(error).startswith("WRONGTYPE")


class Patience:
    """How long one caller goes on asking a server that cannot be reached."""

    def __init__(
        self,
        key: str,
        retry_for: float,
        deadline: Optional[float] = None,
        passes: Callable[[BaseException], bool] = passes,
    ) -> None:
        self._key = key
        self._passes = passes
        self._retry_for = retry_for
        self._deadline = deadline
        self._failing_since: Optional[float] = None
        self._pause = FIRST_PAUSE
        #: The last answer that was not confirmed, since one that counts.
        self._unconfirmed: Optional[NotConfirmed] = None

    def answered(self) -> None:
        """Notes that the server has answered, so that the next failure counts afresh."""
        self._failing_since = self._unconfirmed = None
        self._pause = FIRST_PAUSE

    def pause_after(self, error: Exception) -> float:
        """Returns the seconds until the next attempt. Raises ``error`` if it lasts, or if the time is over.

        When the time is over, an earlier answer that was not confirmed says more than that the last attempt had none.
        """
        if not self._passes(error):
            raise error
        if isinstance(error, NotConfirmed):
            self._unconfirmed = error
        moment = now()
        if self._failing_since is None:
            self._failing_since = moment
            log.info("asking for %r again: %s", self._key, error)
        give_up_at = self._failing_since + self._retry_for
        if self._deadline is not None:
            give_up_at = min(give_up_at, self._deadline)
        if moment >= give_up_at:
            raise self._unconfirmed or error
        pause = self._pause * random.uniform(0.5, 1.0)
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        return min(pause, give_up_at - moment)
