"""A leader in Python: `leader.py redis|valkey threads|tasks keeps|forgets`, or under `dsync run`: `leader.py run`."""

from __future__ import annotations

import asyncio
import gc
import importlib
import logging
import os
import random
import signal
import sys
import threading
import time
import traceback
from typing import Any, Callable, Iterator

import dsync.aio

STEPS = 150
*_, world, way = sys.argv
key, lease = os.environ["LEADER_KEY"], int(os.environ["LEADER_LEASE"]) / 1000


def steps(fence: Any, is_lost: Callable[[], bool]) -> Iterator[float]:
    """Works until the hold is lost, or for long enough. Yields the pauses."""
    for _ in range(STEPS):
        start = time.monotonic_ns()
        gc.collect()
        yield random.uniform(0.002, 0.02)
        end = time.monotonic_ns()
        if is_lost():
            return
        print(fence, start, end, flush=True)


def what_is_kept_of(hold: Any, called: Any) -> tuple[Any, Callable[[], bool]]:
    logging.info("%r", hold)
    return hold.fence, random.choice([hold.lost, called]).is_set


def lead_in_a_thread() -> None:
    if way == "keeps":
        with dsync.lock(client, key, lease=lease, own_connection=owns) as hold:
            for pause in steps(hold.fence, lambda: hold.left() == 0):
                time.sleep(pause)
        return
    called = threading.Event()
    lock = dsync.lock(client, key, lease=lease, own_connection=owns, on_lost=lambda _: called.set())
    for pause in steps(*what_is_kept_of(lock.acquire(), called)):
        time.sleep(pause)


async def lead_in_a_task() -> None:
    if way == "keeps":
        async with dsync.aio.lock(client, key, lease=lease, own_connection=owns) as hold:
            for pause in steps(hold.fence, lambda: hold.left() == 0):
                await asyncio.sleep(pause)
        return
    called = asyncio.Event()
    lock = dsync.aio.lock(client, key, lease=lease, own_connection=owns, on_lost=lambda _: called.set())
    for pause in steps(*what_is_kept_of(await lock.acquire(), called)):
        await asyncio.sleep(pause)


async def stand_for_election() -> None:
    while True:
        try:
            # A thread's leader blocks the loop, in which it is alone.
            lead_in_a_thread() if world == "threads" else await lead_in_a_task()
        except Exception as error:
            traceback.print_exc()
            logging.error("%s %r %s", error, error, vars(error))
            await asyncio.sleep(0.2)


def collect() -> None:
    while True:
        gc.collect()
        time.sleep(1)


def begin_to_collect() -> None:
    # What is imported is no garbage, and takes long to look through.
    gc.freeze()
    threading.Thread(target=collect, daemon=True).start()


if way == "run":
    begin_to_collect()
    told = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    for pause in steps(os.environ["DSYNC_FENCE"], told.is_set):
        time.sleep(pause)
else:
    logging.basicConfig(level=logging.DEBUG)
    owns = random.random() < 0.5
    library = importlib.import_module(sys.argv[1] if world == "threads" else f"{sys.argv[1]}.asyncio")
    client = library.from_url(os.environ["DSYNC_URL"])
    begin_to_collect()
    asyncio.run(stand_for_election())
