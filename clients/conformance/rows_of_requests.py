"""Rows of requests: tries, who gives up, who is killed, and what people see of all that."""

from __future__ import annotations

import re
import socket
import time

from servers import SOON, Server, closing, eventually

from lab import Lab
from rows import Cannot, first_holder, hold, is_, row, wait_for

# A try is short: two seconds in all, whatever the server does, and its error names the server and the key.


def try_is_short(lab: Lab, port: int, lease: int = 30_000) -> None:
    begun = time.monotonic()
    answer = lab.driver.ask("acquire", family="lock", key="the:key", lease=lease, wait=0, **{"as": "t"})
    took = time.monotonic() - begun
    assert answer["is"] in ("busy", "error"), answer
    assert took < 4, f"a try took {took:.1f} s"
    for part in ("the:key", str(port)):
        assert part in answer["text"], answer["text"]


@row("one")
def try_of_a_stopped_server_is_short(lab: Lab) -> None:
    lab.server.stop()
    try_is_short(lab, lab.server.port)


@row("one")
def try_of_a_dead_server_is_short(lab: Lab) -> None:
    lab.server.kill()
    try_is_short(lab, lab.server.port)


@row("one")
def try_behind_a_cut_network_is_short(lab: Lab) -> None:
    proxy = lab.behind_a_proxy()
    is_(lab.driver.ask("acquire", family="lock", key="a", lease=30_000, wait=0, **{"as": "a"}), "held")
    proxy.cut()
    try_is_short(lab, proxy.port)


@row("one")
def try_whose_late_grant_is_not_renewed_is_short(lab: Lab) -> None:
    """A grant is renewed, or asked for again, if its request was sent a tenth of its lease ago."""
    proxy = lab.behind_a_proxy()
    is_(lab.driver.ask("acquire", family="lock", key="a", lease=30_000, wait=0, **{"as": "a"}), "held")
    proxy.sent.clear()
    proxy.delay_answers(0.4)

    def cut_answer_to_renewal() -> None:
        eventually(lambda: proxy.sent.count(b"the:key") > 1, "the renewal of the grant")
        proxy.cut_answers()

    cut = lab.aside(cut_answer_to_renewal)
    try_is_short(lab, proxy.port, lease=3_000)
    cut.result(timeout=SOON)


@row("one")
def try_of_a_busy_key_names_its_holder(lab: Lab) -> None:
    lab.ask("DLOCK.ACQUIRE", "k", "TOKEN", "mine", "PX", 60_000, "OWNER", "ops\x1b[2J\u202e@host:1")
    answer = is_(lab.driver.ask("acquire", family="lock", key="k", lease=30_000, wait=0, **{"as": "t"}), "busy")
    assert "ops" in answer["text"], answer["text"]
    assert not {"\x1b", "\u202e"} & set(answer["text"]), answer["text"]


# Who gives up is out, a forgotten hold ends, and who is killed costs the others little.


@row("one")
def who_gives_up_leaves_the_queue(lab: Lab) -> None:
    lab.ask("DLOCK.ACQUIRE", "k", "TOKEN", "mine", "PX", 60_000)
    answer = wait_for(lab, lab.driver, "k")
    if lab.driver.ask("give_up", **{"as": "w"})["is"] == "cannot":
        raise Cannot("its wait is bounded by time only")
    is_(answer.result(timeout=SOON), "given up")
    eventually(lambda: lab.waiters("k") == 0, "nobody waits", within=3)
    assert lab.ask("DLOCK.RELEASE", "k", "mine") == 1
    assert lab.ask("DLOCK.INFO", "k") is None


@row("one")
def wait_that_runs_out_leaves_the_queue(lab: Lab) -> None:
    lab.ask("DLOCK.ACQUIRE", "k", "TOKEN", "mine", "PX", 60_000)
    answer = lab.driver.ask("acquire", family="lock", key="k", lease=30_000, wait=500, **{"as": "w"})
    is_(answer, "busy")
    # Its place would be kept for five seconds.
    eventually(lambda: lab.waiters("k") == 0, "nobody waits", within=3)


@row("one")
def semaphore_lets_in_as_many_as_its_limit(lab: Lab) -> None:
    words = {"family": "semaphore", "key": "s", "lease": 30_000, "limit": 2}
    for name in ("a", "b"):
        is_(lab.driver.ask("acquire", wait=None, **{"as": name}, **words), "held")
    is_(lab.driver.ask("acquire", wait=0, **{"as": "c"}, **words), "busy")
    third = lab.driver.begin("acquire", wait=None, **{"as": "d"}, **words)
    eventually(lambda: lab.ask("DSEM.INFO", "s") and "waiters" in lab.ask("DSEM.INFO", "s"), "a queue")
    is_(lab.driver.ask("release", **{"as": "a"}), "released")
    is_(third.result(timeout=SOON), "held")


@row("one")
def forgotten_hold_ends(lab: Lab) -> None:
    hold(lab, lease=2_000)
    is_(lab.driver.ask("forget", **{"as": "h"}), "forgotten")
    eventually(lambda: lab.ask("DLOCK.INFO", "k") is None, "the end of a hold that nobody has", within=12)


def loss_of_a_forgotten_hold_is_told_by_its(keep: str) -> None:
    def play(lab: Lab) -> None:
        hold(lab)
        is_(lab.driver.ask("forget", keep=keep, **{"as": "h"}), "forgotten")
        told = lab.driver.begin("until_lost", ms=60_000, **{"as": "h"})
        lab.ask("DLOCK.ACQUIRE", "k", "TOKEN", "next", "PX", 60_000, "BLOCK", 60_000)
        # The margin of a tenth of the lease lies between the two.
        assert told.done(), "the next holder was granted before the first was told its loss"
        is_(told.result(), "lost")

    play.__name__ = f"loss_of_a_forgotten_hold_is_told_by_its_{keep}"
    row("one")(play)


for keep in ("signal", "derived", "callback"):
    loss_of_a_forgotten_hold_is_told_by_its(keep)


@row("one")
def killed_waiter_costs_the_next_five_seconds(lab: Lab) -> None:
    lab.ask("DLOCK.ACQUIRE", "k", "TOKEN", "mine", "PX", 60_000)
    wait_for(lab, lab.driver, "k")
    next_one = lab.aside(lambda: lab.ask("DLOCK.ACQUIRE", "k", "TOKEN", "next", "PX", 60_000, "BLOCK", 60_000))
    eventually(lambda: lab.waiters("k") == 2, "a queue")
    lab.driver.kill()
    # A request that is on its way still counts as a sign of life: then the dead one costs its lease. Left are the next
    # one and the connection that asks.
    eventually(lambda: len(lab.server.client().client_list()) == 2, "the end of its connections")
    begun = time.monotonic()
    assert lab.ask("DLOCK.RELEASE", "k", "mine") == 1
    assert next_one.result(timeout=SOON) is not None, lab.info("k")
    took = time.monotonic() - begun
    assert took < 8, f"the next one waited {took:.1f} s for a dead one"


@row("one")
def killed_holder_costs_its_lease(lab: Lab) -> None:
    hold(lab, lease=3_000)
    next_one = lab.aside(lambda: lab.ask("DLOCK.ACQUIRE", "k", "TOKEN", "next", "PX", 60_000, "BLOCK", 60_000))
    lab.driver.kill()
    assert next_one.result(timeout=12) is not None


# What people and logs see.


@row("one")
def owner_is_user_host_and_process(lab: Lab) -> None:
    process = hold(lab).get("process", lab.driver.pid)
    owner = first_holder(lab, "k")["owner"]
    assert re.fullmatch(rf"[^@:\s]+@{re.escape(socket.gethostname())}:{process}", owner), owner


@row("one")
def token_is_never_shown(lab: Lab) -> None:
    # The server shows it nowhere either, so it is read from what was sent.
    proxy = lab.behind_a_proxy()
    hold(lab)
    token = re.findall(rb"TOKEN\r\n\$\d+\r\n([^\r]+)", proxy.sent)[-1].decode()
    shown = is_(lab.driver.ask("show", **{"as": "h"}), "shown")["text"]
    assert token not in shown, shown


@row("one")
def error_of_a_server_without_the_module_says_so_and_shows_no_token(lab: Lab) -> None:
    """Redis shows the first 128 bytes of the arguments. A long key has the token cut."""
    server = Server(has_module=False)
    with closing(server):
        proxy = lab.behind_a_proxy(server)
        for family in ("lock", "semaphore", "group", "once"):
            for key in ("the:key", "the:key:" + 50 * "x"):
                proxy.sent.clear()
                words = {"family": family, "key": key, "lease": 30_000, "wait": None, "limit": 1}
                answer = is_(lab.driver.ask("acquire", **{"as": "h"}, **words), "error")
                token = re.findall(rb"TOKEN\r\n\$\d+\r\n([^\r]+)", proxy.sent)[-1].decode()
                said = answer["text"] + lab.driver.said()
                assert token[:6] not in said, said
                for part in ("this server has not loaded the dsync module", key, str(proxy.port)):
                    assert part in answer["text"], answer["text"]


@row("one")
def error_of_a_request_names_server_and_key(lab: Lab) -> None:
    lab.ask("SET", "the:key", "1")
    words = {"family": "lock", "key": "the:key", "lease": 30_000, "wait": None}
    text = is_(lab.driver.ask("acquire", **{"as": "h"}, **words), "error")["text"]
    for part in ("the:key", str(lab.server.port)):
        assert part in text, text
