"""What asking for work that is done once finds."""

from __future__ import annotations

from typing import Generic, Optional, TypeVar, Union

from ._protocol import Done

HoldType = TypeVar("HoldType")
Result = Union[bytes, str, None]


class Run(Generic[HoldType]):
    """Work to do, or the result of work that is done already."""

    def __init__(self, hold: Optional[HoldType], attempt: int, result: Result = None) -> None:
        #: The hold of the one who does the work; ``None`` if the work is done already.
        self.hold = hold
        #: Which attempt at the work this is, or was the one that did it; from 1.
        self.attempt = attempt
        self._result = result

    @classmethod
    def done(cls, done: Done) -> Run[HoldType]:
        return cls(None, done.attempt, done.result)

    @property
    def is_done(self) -> bool:
        """Whether the work is done already, so that there is nothing to do."""
        return self.hold is None

    @property
    def result(self) -> Result:
        """The result: bytes (or ``None``) if the work was done already, and what was set otherwise."""
        return self._result

    @result.setter
    def result(self, value: Result) -> None:
        if self.is_done:
            raise AttributeError("the work is done already, and its result cannot be changed")
        self._result = value
