"""A plugin for pytest that runs redis-py's own tests of its Lock over dsync.

The tests take ``redis.lock.Lock`` and ``redis.asyncio.lock.Lock`` for ``lock_class=``; here these are dsync's. Those of
exceptions.txt must fail: each would say that dsync keeps a lock as a string, or polls.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import redis.asyncio.lock
import redis.lock

import dsync.aio.redis_lock
import dsync.redis_lock

redis.lock.Lock = dsync.redis_lock.Lock  # type: ignore[misc]
redis.asyncio.lock.Lock = dsync.aio.redis_lock.Lock  # type: ignore[misc]

# "name of the test: reason"
_LINE = re.compile(r"(test_\w+): (.+)")


def _exceptions() -> dict[str, str]:
    lines = Path(__file__).with_name("exceptions.txt").read_text().splitlines()
    matches = [_LINE.fullmatch(line) for line in lines if line and not line.startswith("#")]
    assert all(matches), "each line of exceptions.txt is a test and its reason"
    return {match[1]: match[2] for match in matches if match}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    exceptions = _exceptions()
    found = set()
    for item in items:
        name = getattr(item, "originalname", item.name)
        if name in exceptions:
            found.add(name)
            item.add_marker(pytest.mark.xfail(reason=exceptions[name], strict=True))
    assert found == set(exceptions), f"no such tests: {set(exceptions) - found}"
