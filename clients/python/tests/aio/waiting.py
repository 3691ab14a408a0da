"""Conditions that tasks wait for."""

import asyncio
import time
from typing import Any, Awaitable, Callable

from servers import SOON


async def eventually(holds: Callable[[], Awaitable[Any]], what: str) -> Any:
    """Waits until this is true, and returns it."""
    deadline = time.monotonic() + SOON
    while True:
        value = await holds()
        if value:
            return value
        assert time.monotonic() < deadline, f"still not true after {SOON} s: {what}"
        await asyncio.sleep(0.02)


async def waiters(client: Any) -> int:
    return sum(row[3] for row in await client.execute_command("DSYNC.CONTENDED"))


async def holders(client: Any, key: str, family: str = "DLOCK") -> int:
    info = await client.execute_command(f"{family}.INFO", key)
    if info is None:
        return 0
    pairs = info.items() if isinstance(info, dict) else zip(info[::2], info[1::2])
    return int(dict(pairs)[b"holders"])
