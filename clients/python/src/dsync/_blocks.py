"""Which hold the end of a block ends.

One claim serves any number of blocks at once, and Python calls the same ``__exit__`` at the end of each: in any order,
and from any thread or task, where a generator has the block. But each ``with`` statement looks up ``__exit__`` right
before it calls ``__enter__``, and calls what it has found then, as ExitStack does. So each look-up here finds an exit
of its own. It takes the hold of its block, and is all that keeps it: a block that is forgotten forgets its hold.
"""

from __future__ import annotations

import threading
import weakref
from types import TracebackType
from typing import Any, Callable, Generic, Optional, TypeVar, cast

from ._mutex import taking

Way = TypeVar("Way")


class _LookedUp(threading.local):
    """The exit that this thread has looked up last, unless nobody has kept it."""

    latest: Optional[weakref.ref[Exit[Any]]] = None


_LOOKED_UP = _LookedUp()


class Exit(Generic[Way]):
    """The way out of one block."""

    def __init__(self, claim: Any, leave: Callable[..., Way]) -> None:
        # None if it was looked up at the class, as ExitStack does: then the claim is an argument.
        self._claim = claim
        self._leave = leave
        self._held: Any = None

    def enters(self, held: Any) -> None:
        self._held = held

    def __call__(self, *arguments: Any) -> Way:
        claim, *error = arguments if self._claim is None else (self._claim, *arguments)
        held, self._held = self._held, None
        return self._leave(claim, claim._by_hand.leaves() if held is None else held, *error)


class _ExitOfEachBlock(Generic[Way]):
    def __init__(self, leave: Callable[..., Way]) -> None:
        self._leave = leave
        self.__doc__ = leave.__doc__

    def __get__(self, claim: Any, kind: Any) -> Exit[Way]:
        found = Exit(claim, self._leave)
        _LOOKED_UP.latest = weakref.ref(found)
        return found


#: What a block is left with, as ``__exit__`` is told it.
Kind = Optional[type[BaseException]]
Error = Optional[BaseException]
Trace = Optional[TracebackType]


def exit_of_each_block(
    leave: Callable[[Any, Any, Kind, Error, Trace], Way],
) -> Callable[[Any, Kind, Error, Trace], Way]:
    """Decorates ``__exit__`` or ``__aexit__``, which is given what its block holds as its first argument."""
    # For a type checker it is a method like any other.
    return cast("Callable[[Any, Kind, Error, Trace], Way]", _ExitOfEachBlock(leave))


class ByHand:
    """What was entered by a call of ``__enter__``, and not by a statement; ``who`` names the running thread or task."""

    def __init__(self, who: Callable[[], Any]) -> None:
        self._who = who
        self._lock = threading.RLock()
        self._held: list[tuple[Any, Any]] = []

    def entering(self) -> Callable[[Any], None]:
        """Called first of all by ``__enter__``. Returns what to call with the hold when there is one."""
        looked_up, _LOOKED_UP.latest = _LOOKED_UP.latest, None
        way_out = None if looked_up is None else looked_up()
        return self._enters if way_out is None else way_out.enters

    def _enters(self, held: Any) -> None:
        with taking(self._lock):
            self._held.append((self._who(), held))

    def leaves(self) -> Any:
        """Returns what this thread or task has entered last; else what is there, if there is no doubt about it."""
        with taking(self._lock):
            me = self._who()
            mine = [index for index, (who, _) in enumerate(self._held) if who == me]
            if not mine and len(self._held) != 1:
                raise RuntimeError(f"nobody knows which of {len(self._held)} holds this is the end of")
            return self._held.pop(mine[-1] if mine else 0)[1]
