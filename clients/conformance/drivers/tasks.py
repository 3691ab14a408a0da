"""The driver of dsync.aio: `tasks.py redis|valkey own|shared`. Its orders are those of the README."""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import logging
import sys
from typing import Any, Optional

import dsync
from dsync import aio

library = importlib.import_module(f"{sys.argv[1]}.asyncio")
options: dict[str, Any] = {"own_connection": sys.argv[2] == "own"}
held: dict[str, Any] = {}
Login = dict[str, Any]
#: What is set by the `on_lost` of each hold, and what is kept of those that are forgotten.
calls: dict[str, Any] = {}
losses: dict[str, Any] = {}
asking: dict[str, asyncio.Task[None]] = {}


def connect(mode: str, ports: list[int], who: Login, at_sentinels: Login) -> Any:
    if mode == "one":
        return (library.Redis if sys.argv[1] == "redis" else library.Valkey)(port=ports[0], **who)
    if mode == "sentinel":
        sentinels = importlib.import_module(f"{sys.argv[1]}.asyncio.sentinel")
        at_sentinels["socket_timeout"] = 1
        group = sentinels.Sentinel([("127.0.0.1", port) for port in ports], sentinel_kwargs=at_sentinels)
        return group.master_for("locks", socket_timeout=5, **who)
    nodes = importlib.import_module(f"{sys.argv[1]}.asyncio.cluster")
    cluster = nodes.RedisCluster if sys.argv[1] == "redis" else nodes.ValkeyCluster
    return cluster(startup_nodes=[nodes.ClusterNode("127.0.0.1", port) for port in ports], socket_timeout=5)


def login(user: Optional[str], password: Optional[str], ca: Optional[str]) -> Login:
    """The words of who logs in, over TLS if there is an authority to trust."""
    who: Login = {} if password is None else {"username": user, "password": password}
    return who if ca is None else {**who, "ssl": True, "ssl_ca_certs": ca, "ssl_check_hostname": True}


async def acquire(order: dict[str, Any]) -> dict[str, Any]:
    words = {"lease": order["lease"] / 1000, "wait": None if order["wait"] is None else order["wait"] / 1000, **options}
    words.update((name, order[name]) for name in ("owner", "replicas", "disk") if order.get(name) is not None)
    words.update(
        (name, order[name] / 1000) for name in ("within", "max_hold", "retry_for") if order.get(name) is not None
    )
    called = calls[order["as"]] = asyncio.Event()
    words["on_lost"] = lambda _: called.set()
    key = order["key"]
    if order["family"] == "once":
        block = aio.once.begin(client, key, max_attempts=order.get("attempts"), **words)
        run = await block.__aenter__()
        if run.is_done:
            return {"is": "done", "text": (run.result or b"").decode()}
        held[order["as"]] = (run.hold, run, block)
        return {"is": "held", "fence": run.hold.fence, "attempt": run.attempt}
    if order["family"] == "group":
        block = aio.group(client, key).member(**words)
        hold = await block.__aenter__()
        held[order["as"]] = (hold, None, block)
        return {"is": "held", "fence": hold.fence}
    if order.get("min_hold") is not None:
        words["min_hold"] = order["min_hold"] / 1000
    if order["family"] == "semaphore":
        words.update((name, order[name]) for name in ("limit", "lane", "lane_limit", "index") if name in order)
        claim = aio.semaphore(client, key, **words)
    else:
        claim = aio.lock(client, key, **words)
    hold = await claim.acquire()
    held[order["as"]] = (hold, None, None)
    return {"is": "held", "fence": hold.fence, "index": hold.index}


async def work_once(order: dict[str, Any]) -> dict[str, Any]:
    runs = 0

    @aio.once(client, order["key"], max_attempts=order.get("attempts"), until_done=bool(order.get("until_done")))
    async def work() -> Any:
        nonlocal runs
        runs += 1
        if runs <= order.get("failures", 0):
            raise OSError("no disk")
        return order["value"]

    try:
        return {"is": "value", "value": await work(), "runs": runs}
    except Exception as error:
        return {"is": "failed", "text": f"{type(error).__name__}: {error}", "runs": runs}


async def obey(order: dict[str, Any]) -> dict[str, Any]:
    global client
    what = order["do"]
    if what == "connect":
        ca = order.get("ca")
        who = login(order.get("user"), order.get("password"), ca)
        at_sentinels = login(order.get("sentinel_user"), order.get("sentinel_password"), ca)
        client = connect(order["mode"], order["ports"], who, at_sentinels)
        return {"is": "connected"}
    if what == "acquire":
        asking[order["as"]] = asyncio.current_task()
        return await acquire(order)
    if what == "give_up":
        asking[order["as"]].cancel()
        return {"is": "cancelled"}
    if what == "locked":
        ask = aio.semaphore if order["family"] == "semaphore" else aio.lock
        return {"is": "locked" if await ask(client, order["key"]).locked() else "free"}
    if what == "holders":
        return {"is": "holders", "fences": [holder.fence for holder in await aio.lock(client, order["key"]).holders()]}
    if what == "once":
        return await work_once(order)
    if what == "until_lost":
        lost = losses.get(order["as"]) or held[order["as"]][0].lost
        try:
            await asyncio.wait_for(lost.wait(), order["ms"] / 1000)
        except asyncio.TimeoutError:
            return {"is": "held"}
        return {"is": "lost"}
    hold, run, block = held[order["as"]]
    if what == "renew":
        return {"is": "renewed" if await hold.renew(lease=order["lease"] / 1000) else "lost"}
    if what == "look":
        return {"is": "held" if hold.left() > 0 else "lost"}
    if what == "show":
        return {"is": "shown", "text": repr(hold) + str(hold) + repr(run)}
    del held[order["as"]]
    if what == "release":
        return {"is": "released" if await hold.release() else "lost"}
    if what == "done":
        if run is not None:
            run.result = order["result"]
        await block.__aexit__(None, None, None)
        return {"is": "done"}
    if what == "fail":
        error = OSError(order["reason"])
        await block.__aexit__(type(error), error, None)
        return {"is": "failed"}
    assert what == "forget", what
    if order.get("keep") == "derived":
        return {"is": "cannot", "why": "nothing is made of an event"}
    if order.get("keep") is not None:
        losses[order["as"]] = hold.lost if order["keep"] == "signal" else calls[order["as"]]
    del hold, run, block
    gc.collect()
    return {"is": "forgotten"}


async def answer(order: dict[str, Any]) -> None:
    try:
        said = await obey(order)
    except dsync.NotAcquired as busy:
        said = {"is": "busy", "text": str(busy)}
    except dsync.NotConfirmed as few:
        said = {"is": "not confirmed", "have": few.have, "wanted": few.wanted, "text": str(few)}
    except dsync.WorkFailed as failed:
        said = {"is": "failed", "text": str(failed)}
    except dsync.HoldLost as lost:
        said = {"is": "lost", "text": str(lost)}
    except asyncio.CancelledError:
        said = {"is": "given up"}
    except Exception as error:  # The runner shows it.
        said = {"is": "error", "text": f"{type(error).__name__}: {error}"}
    print(json.dumps({"id": order["id"], **said}), flush=True)


async def main() -> None:
    logging.basicConfig()
    tasks = set()
    lines = asyncio.StreamReader(limit=1 << 20)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        task = asyncio.create_task(answer(json.loads(line)))
        tasks.add(task)
        task.add_done_callback(tasks.discard)


asyncio.run(main())
