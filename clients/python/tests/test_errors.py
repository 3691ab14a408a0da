"""Errors, as a pool of processes hands them on."""

import copy
import pickle

import pytest

from dsync import DsyncError, Holder, HoldLost, NotAcquired, NotConfirmed, WorkFailed

ERRORS = [
    NotAcquired("k"),
    NotAcquired("k", [Holder(7, "web-1", 27.9, 2.1)], "paused"),
    HoldLost("k", 7, "it was revoked"),
    NotConfirmed("k", 0, 2),
    WorkFailed("k", "lapsed", 3),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_error_is_the_same_in_another_process(error: DsyncError) -> None:
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(other) is type(error)
        assert (str(other), vars(other)) == (str(error), vars(error))
