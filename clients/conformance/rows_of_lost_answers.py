"""Rows of answers that are lost, connections that are closed, and processes that sleep."""

from __future__ import annotations

import os
import signal
import time

from servers import SOON, Proxy, eventually

from lab import Lab
from rows import Cannot, first_holder, hold, is_, is_recorded, record, row, told, wait_for


@row("one")
def release_whose_answer_is_lost_is_one(lab: Lab) -> None:
    proxy = lab.behind_a_proxy()
    hold(lab, lease=60_000)
    proxy.cut_answers()
    released = lab.driver.begin("release", **{"as": "h"})
    eventually(lambda: lab.ask("DLOCK.INFO", "k") is None, "a release that nobody has heard of")
    proxy.mend()
    is_(released.result(timeout=SOON), "released")


@row("one")
def work_whose_answer_is_lost_is_done(lab: Lab) -> None:
    proxy = lab.behind_a_proxy()
    hold(lab, "job", family="once", lease=60_000)
    proxy.cut_answers()
    done = record(lab)
    eventually(lambda: lab.ask("DONCE.GET", "job"), "a result that nobody has heard of")
    proxy.mend()
    is_recorded(done, lab, "job")


@row("one")
def member_whose_answer_is_lost_is_done(lab: Lab) -> None:
    proxy = lab.behind_a_proxy()
    hold(lab, "jobs", family="group", lease=60_000)
    proxy.cut_answers()
    done = lab.driver.begin("done", result="", **{"as": "h"})
    eventually(lambda: lab.ask("DWG.WAIT", "jobs") == [1, 0], "a tally that nobody has heard of")
    proxy.mend()
    is_(done.result(timeout=SOON), "done")


@row("one")
def member_that_is_lost_stays_so_where_its_answer_is_lost(lab: Lab) -> None:
    proxy = lab.behind_a_proxy()
    if "process" in hold(lab, "jobs", family="group", lease=3_000):
        raise Cannot("it ends its work with the hold")
    proxy.cut()
    told(lab, 6)
    eventually(lambda: lab.ask("DWG.WAIT", "jobs") == [0, 1], "a member that has lapsed")
    proxy.mend()
    proxy.cut_answers_from(b"DWG.DONE")
    done = record(lab)
    eventually(lambda: proxy.sent.count(b"DWG.DONE") > 0, "a request")
    proxy.mend()
    is_(done.result(timeout=SOON), "lost")


@row("one")
def work_that_is_told_after_another_has_begun_is_lost(lab: Lab) -> None:
    proxy = lab.behind_a_proxy()
    hold(lab, "job", family="once", lease=4_000)
    proxy.cut()
    done = record(lab)
    assert lab.ask("DONCE.BEGIN", "job", "TOKEN", "another", "PX", 60_000, "BLOCK", 60_000)[0] == "RUN"
    proxy.mend()
    is_(done.result(timeout=SOON), "lost")


@row("one")
def failure_of_a_lost_run_is_told_until_it_arrives(lab: Lab) -> None:
    """The lease of a stopped server does not run out, so the attempt is not over for it."""
    proxy = lab.behind_a_proxy()
    hold(lab, "job", family="once", lease=5_000)
    proxy.cut()
    lab.server.stop()
    told(lab, within=5)
    failed = lab.driver.begin("fail", reason="no disk", **{"as": "h"})
    time.sleep(3)
    lab.server.go_on()
    proxy.mend()
    is_(failed.result(timeout=SOON), "failed")
    given_up = lab.ask("DONCE.BEGIN", "job", "MAX", 1, "TOKEN", "another")
    assert given_up[0] == "FAILED", given_up
    assert "no disk" in given_up[1], given_up


@row("one", "pair")
def renewals_whose_answers_are_lost_lose_nothing(lab: Lab) -> None:
    """All are in one write. With a replica they are confirmed."""
    proxy = lab.behind_a_proxy()
    words = {"family": "lock", "lease": 9_000, "wait": None, "replicas": 1 if lab.mode == "pair" else None}
    names = [str(number) for number in range(8)]
    for answer in [lab.driver.begin("acquire", key=name, **{"as": name}, **words) for name in names]:
        is_(answer.result(timeout=SOON), "held")
    proxy.cut_answers()
    time.sleep(4)
    proxy.mend()
    for answer in [lab.driver.begin("until_lost", ms=10_000, **{"as": name}) for name in names]:
        is_(answer.result(timeout=SOON), "held")
    for name in names:
        is_(lab.driver.ask("release", **{"as": name}), "released")


@row("pair")
def confirmed_work_whose_answer_is_lost_is_not_lost(lab: Lab) -> None:
    proxy = lab.behind_a_proxy()
    hold(lab, "job", family="once", lease=60_000, replicas=1)
    proxy.cut_answers()
    done = record(lab)
    time.sleep(3)
    proxy.mend()
    # Nobody can confirm what was recorded over a connection that is dead.
    assert done.result(timeout=SOON)["is"] in ("done", "not confirmed"), done.result()
    assert lab.ask("DONCE.GET", "job")[0] == "DONE"


@row("pair")
def confirmed_work_that_never_arrived_is_done_when_it_is_told_again(lab: Lab) -> None:
    """RENEW right before it finds the hold, so it is the first."""
    proxy = lab.behind_a_proxy()
    for family in ("once", "group"):
        hold(lab, family, family=family, lease=60_000, replicas=1)
        proxy.cut()
        done = record(lab)
        time.sleep(3)
        proxy.mend()
        is_(done.result(timeout=SOON), "done")
    assert lab.ask("DONCE.GET", "once", server=lab.standby)[0] == "DONE"
    assert lab.ask("DWG.WAIT", "group") == [1, 0]


@row("pair")
def confirmed_work_whose_answer_is_lost_is_not_done_before_a_replica_knows(lab: Lab) -> None:
    """WAIT behind a repetition, which writes nothing, confirms anything. A member's is answered 0."""
    proxy = lab.behind_a_proxy()
    for family in ("once", "group"):
        hold(lab, family, family=family, lease=20_000, replicas=1)
        lab.standby.stop()
        is_not_confirmed_without_its_answer(lab, proxy)
        lab.standby.go_on()
    assert lab.ask("DONCE.GET", "once")[0] == "DONE"
    assert lab.ask("DWG.WAIT", "group") == [1, 0]


@row("pair")
def confirmed_work_of_a_lost_hold_is_not_done_before_a_replica_knows(lab: Lab) -> None:
    """No RENEW tells whether its repeated DONE is the first."""
    proxy = lab.behind_a_proxy()
    if "process" in hold(lab, "job", family="once", lease=3_000, max_hold=3_000, replicas=1):
        raise Cannot("it ends its work with the hold")
    told(lab, 6)
    lab.standby.stop()
    is_not_confirmed_without_its_answer(lab, proxy)
    assert lab.ask("DONCE.GET", "job")[0] == "DONE"


def is_not_confirmed_without_its_answer(lab: Lab, proxy: Proxy) -> None:
    """The work of `h` is done, and nobody hears of it."""
    before = len(proxy.sent)
    proxy.cut_answers_from(b"DONE")
    done = record(lab)
    eventually(lambda: b"DONE" in proxy.sent[before:] or done.done(), "a DONE")
    time.sleep(0.5)
    proxy.mend()
    is_(done.result(timeout=SOON), "not confirmed")


@row("one")
def grant_whose_answer_is_lost_is_the_hold(lab: Lab) -> None:
    proxy = lab.behind_a_proxy()
    # node-redis does not tell which database it has selected: it has to have been asked while there are answers.
    hold(lab, key="other")
    is_(lab.driver.ask("release", **{"as": "h"}), "released")
    lab.ask("DLOCK.ACQUIRE", "k", "TOKEN", "mine", "PX", 60_000)
    answer = wait_for(lab, lab.driver, "k")
    proxy.cut_answers()
    lab.ask("DLOCK.RELEASE", "k", "mine")
    eventually(lambda: lab.waiters("k") == 0, "a grant that nobody has heard of")
    fence = first_holder(lab, "k")["fence"]
    proxy.mend()
    assert is_(answer.result(timeout=SOON), "held")["fence"] == fence


@row("one")
def who_gives_up_on_a_stopped_server_leaves_the_queue(lab: Lab) -> None:
    lab.ask("DLOCK.ACQUIRE", "k", "TOKEN", "mine", "PX", 60_000)
    answer = wait_for(lab, lab.driver, "k")
    lab.server.stop()
    if lab.driver.ask("give_up", **{"as": "w"})["is"] == "cannot":
        lab.server.go_on()
        raise Cannot("its wait is bounded by time only")
    begun = time.monotonic()
    is_(answer.result(timeout=SOON), "given up")
    took = time.monotonic() - begun
    lab.server.go_on()
    assert took < 7, f"to give up took {took:.1f} s"
    eventually(lambda: lab.waiters("k") == 0, "nobody waits")
    assert lab.ask("DLOCK.RELEASE", "k", "mine") == 1
    eventually(lambda: lab.ask("DLOCK.INFO", "k") is None, "nobody holds", within=10)


@row("one")
def wait_behind_a_stopped_server_is_over_in_time(lab: Lab) -> None:
    lab.ask("DLOCK.ACQUIRE", "k", "TOKEN", "mine", "PX", 60_000)
    begun = time.monotonic()
    words = {"family": "lock", "key": "k", "lease": 30_000, "wait": 4_000}
    answer = lab.driver.begin("acquire", **{"as": "w"}, **words)
    eventually(lambda: lab.waiters("k") == 1, "a waiter")
    lab.server.stop()
    assert answer.result(timeout=SOON)["is"] in ("busy", "error"), answer.result()
    took = time.monotonic() - begun
    lab.server.go_on()
    assert took < 9, f"a wait of four seconds took {took:.1f} s"


@row("one")
def process_that_slept_past_its_lease_holds_nothing(lab: Lab) -> None:
    pid = hold(lab, lease=3_000).get("process", lab.driver.pid)
    for sleeper in {pid, lab.driver.pid}:
        os.kill(sleeper, signal.SIGSTOP)
    lab.ask("DLOCK.ACQUIRE", "k", "TOKEN", "next", "PX", 60_000, "BLOCK", 60_000)
    looked = lab.driver.begin("look" if pid == lab.driver.pid else "until_lost", ms=2_000, **{"as": "h"})
    for sleeper in {pid, lab.driver.pid}:
        os.kill(sleeper, signal.SIGCONT)
    is_(looked.result(timeout=SOON), "lost")


@row("one")
def release_waits_for_a_stopped_server(lab: Lab) -> None:
    hold(lab, lease=30_000)
    lab.server.stop()
    released = lab.driver.begin("release", **{"as": "h"})
    time.sleep(5)
    lab.server.go_on()
    is_(released.result(timeout=SOON), "released")
    assert lab.ask("DLOCK.INFO", "k") is None


@row("one")
def refusal_is_told_at_once(lab: Lab) -> None:
    lab.ask("ACL", "SETUSER", "default", "-dlock.acquire")
    begun = time.monotonic()
    answer = lab.driver.ask("acquire", family="lock", key="k", lease=30_000, wait=None, **{"as": "h"})
    took = time.monotonic() - begun
    text = is_(answer, "error")["text"]
    assert "permission" in text or "NOPERM" in text, answer
    assert took < 5, f"a refusal was told after {took:.1f} s"


@row("one")
def hold_outlives_connections_that_are_closed(lab: Lab) -> None:
    hold(lab, lease=4_000)
    lost = lab.driver.begin("until_lost", ms=9_000, **{"as": "h"})
    while not lost.done():
        lab.close_connections()
        time.sleep(0.3)
    is_(lost.result(), "held")
    is_(lab.driver.ask("release", **{"as": "h"}), "released")


@row("one")
def waiter_keeps_its_place_over_connections_that_are_closed(lab: Lab) -> None:
    lab.ask("DLOCK.ACQUIRE", "k", "TOKEN", "mine", "PX", 60_000)
    answer = wait_for(lab, lab.driver, "k")
    lab.ask("DLOCK.ACQUIRE", "k", "TOKEN", "behind", "PX", 60_000, "QUEUE", 60_000)
    for _ in range(5):
        lab.close_connections()
        time.sleep(0.2)
    lab.ask("DLOCK.RELEASE", "k", "mine")
    is_(answer.result(timeout=SOON), "held")
    assert lab.waiters("k") == 1


@row("one")
def place_is_kept_while_new_connections_are_dead(lab: Lab) -> None:
    """A place is kept for five seconds from the last request for it."""
    proxy = lab.behind_a_proxy()
    if "process" in hold(lab, key="other"):
        raise Cannot("each wait has connections of its own")
    is_(lab.driver.ask("release", **{"as": "h"}), "released")
    lab.ask("DLOCK.ACQUIRE", "k", "TOKEN", "mine", "PX", 60_000)
    proxy.cut_new_connections()
    answer = wait_for(lab, lab.driver, "k")
    lab.ask("DLOCK.ACQUIRE", "k", "TOKEN", "behind", "PX", 60_000, "QUEUE", 60_000)
    time.sleep(11)
    proxy.mend()
    lab.ask("DLOCK.RELEASE", "k", "mine")
    is_(answer.result(timeout=SOON), "held")
    assert lab.waiters("k") == 1
