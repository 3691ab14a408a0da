"""What the Python client costs in CPU time, beside redis-py's own commands: ``bench.py [threads|tasks]``.

The server of the port in ``DSYNC_BENCH_PORT`` has the module. Prints a line of JSON for threads (``redis-py``) and one for
tasks (``redis.asyncio``). A cycle takes a lock and releases it; its raw form is SET NX PX and EVALSHA. A renewal is one of
many holds that are due in the background, and alone one that the program asks for; the raw form of both is one PEXPIRE.
The forms take turns, so that what else the machine does meets all of them.
"""

import asyncio
import json
import os
import statistics
import sys
import time

import redis
import redis.asyncio

import dsync
import dsync.aio

ROUNDS, CALLS = 15, 200
HOLDS, LEASE = 100, 3.0
UNLOCK = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"
PORT = int(os.environ["DSYNC_BENCH_PORT"])


class Threads:
    """How a thread takes each step. Its calls are done when they return."""

    name, package = "redis-py", dsync

    def __init__(self):
        self.client = redis.Redis(port=PORT)

    async def do(self, result):
        return result

    async def cycle(self):
        with dsync.lock(self.client, "bench:helper"):
            pass

    async def sleep(self, seconds):
        time.sleep(seconds)

    def close(self):
        return self.client.close()


class Tasks(Threads):
    """The same for a task, which awaits its calls."""

    name, package = "redis.asyncio", dsync.aio

    def __init__(self):
        self.client = redis.asyncio.Redis(port=PORT)

    async def do(self, result):
        return await result

    async def cycle(self):
        async with dsync.aio.lock(self.client, "bench:helper"):
            pass

    async def sleep(self, seconds):
        await asyncio.sleep(seconds)

    def close(self):
        return self.client.aclose()


async def cost(calls, work):
    """Returns the microseconds of this process's CPU time for one call."""
    before = time.process_time_ns()
    for _ in range(calls):
        await work()
    return (time.process_time_ns() - before) / calls / 1_000


async def measure(way):
    client, do = way.client, way.do
    unlock = await do(client.script_load(UNLOCK))
    await do(client.set("bench:held", "token"))
    hold = await do(way.package.lock(client, "bench:alone").acquire())

    async def raw():
        await do(client.set("bench:raw", "token", nx=True, px=30_000))
        await do(client.evalsha(unlock, 1, "bench:raw", "token"))

    async def command():
        await do(client.pexpire("bench:held", 30_000))

    async def alone():
        await do(hold.renew())

    kinds = {"raw": raw, "helper": way.cycle, "command": command, "alone": alone}
    found = {kind: [] for kind in kinds}
    for number in range(ROUNDS + 1):
        for kind, work in kinds.items():
            us = await cost(CALLS, work)
            # The first round connects.
            if number > 0:
                found[kind].append(us)
    await do(hold.release())
    us = {kind: statistics.median(values) for kind, values in found.items()}
    us["renewal"] = await renewals(way)
    await do(way.close())
    return {
        "client": way.name,
        "cycle": round(us["helper"] / us["raw"], 2),
        "renewal": round(us["renewal"] / us["command"], 2),
        "renewal_alone": round(us["alone"] / us["command"], 2),
        **{f"{kind}_us": round(value, 1) for kind, value in us.items()},
        "cycles": ROUNDS * CALLS,
    }


async def renewals(way):
    """Returns what one renewal costs of the CPU time in which many holds are only held."""

    async def count():
        stats = await way.do(way.client.info("commandstats"))
        return stats.get("cmdstat_dlock.renew", stats.get("cmdstat_DLOCK.RENEW", {"calls": 0}))["calls"]

    holds = [await way.do(way.package.lock(way.client, f"bench:{n}", lease=LEASE).acquire()) for n in range(HOLDS)]
    # The first renewals connect.
    await way.sleep(LEASE / 2)
    before = await count()
    us = await cost(1, lambda: way.sleep(2 * LEASE))
    renewed = await count() - before
    for hold in holds:
        hold.raise_if_lost()
        await way.do(hold.release())
    return us / renewed


def main():
    kinds = {"threads": Threads, "tasks": Tasks}
    for name in sys.argv[1:] or kinds:
        # A thread's coroutines never wait, so a loop around them takes no part in what they cost.
        print(json.dumps(asyncio.run(measured(kinds[name]))), flush=True)


async def measured(kind):
    return await measure(kind())


main()
