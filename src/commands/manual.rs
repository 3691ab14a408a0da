//! What the page of a command in `docs/commands` says besides what the server knows of the command: when to use it,
//! sessions, and related commands. The commands of one family have their [`Manual`] in their row; those that all
//! families share have it here, because what they mean differs from family to family.
//!
//! Only tests compile this, so the texts take no memory of a server.

use dsync_engine::Family;

#[derive(Clone, Copy)]
pub(super) struct Manual {
    /// When to use the command and what to mind, in Markdown. `{family}` stands for the prefix of the family's
    /// commands, and `{page}` for the same in the names of pages.
    pub(super) text: &'static str,
    pub(super) sessions: &'static [Session],
    /// Names of related commands.
    pub(super) see_also: &'static [&'static str],
}

/// Requests of two connections on a server without keys. Each reply has a form that the table documents.
#[derive(Clone, Copy)]
pub(super) struct Session {
    pub(super) shows: &'static str,
    /// As in `ReplyForm::before`; the last line is one of these too. The line `B` is the reply to the second
    /// connection, which has waited until then.
    pub(super) lines: &'static [&'static str],
}

pub(super) const fn release(family: Family) -> Manual {
    let (text, sessions): (_, &'static [Session]) = match family {
        Family::Lock => (
            "Release a lock as soon as the work is done: the next in line is granted at once. A late release is \
             harmless. It answers 0 and never touches the hold of somebody else, because only the token counts.\n\n\
             RELEASE is also how a client gives up waiting: with the token of a queued request it withdraws the \
             request. Send it whenever a client library stopped waiting for the reply of a request with `BLOCK`; \
             otherwise the lock may be granted behind the client's back, and stays held for a whole lease. A copy of the \
             request that comes later, within `dsync.rejoin-ms`, is answered `UNBLOCKED` and not queued.",
            &[Session {
                shows: "a queued request is withdrawn",
                lines: &[
                    "{hold}",
                    "B> {request} BLOCK 60000",
                    "DLOCK.RELEASE jobs:1 b-72",
                    "B",
                ],
            }],
        ),
        Family::Semaphore => (
            "Gives back all permits of the token's hold as soon as the work is done: the next in line is granted \
             at once if enough permits are free. A late release is harmless. It answers 0 and never touches the hold \
             of somebody else, because only the token counts.\n\n\
             RELEASE is also how a client gives up waiting: with the token of a queued request it withdraws the \
             request. Send it whenever a client library stopped waiting for the reply of a request with `BLOCK`; \
             otherwise permits may be granted behind the client's back, and stay taken for a whole lease. A copy of the \
             request that comes later, within `dsync.rejoin-ms`, is answered `UNBLOCKED` and not queued.",
            &[Session {
                shows: "a queued request is withdrawn",
                lines: &[
                    "{hold}",
                    "B> {request} BLOCK 60000",
                    "DSEM.RELEASE jobs:1 b-72",
                    "B",
                ],
            }],
        ),
        Family::Group => (
            "Ends a membership without counting it, neither as done nor as lost: for a worker that shuts down \
             before it has finished. Where [DWG.EXPECT](dwg.expect.md) declared a total, the job stays owed until a \
             member has done it. To count a job as done, use [DWG.DONE](dwg.done.md).\n\n\
             With the token of a queued DWG.ADD it withdraws that request. A copy of it that comes later, within \
             `dsync.rejoin-ms`, is answered `UNBLOCKED` and not queued.",
            &[Session {
                shows: "a released membership is not counted",
                lines: &["{hold}", "DWG.RELEASE jobs:1 a-41", "DWG.WAIT jobs:1"],
            }],
        ),
        Family::Once => (
            "Hands the work back without counting the attempt: for a worker that shuts down before it has \
             finished. The next in line begins with the same attempt. An attempt that failed is ended with \
             [DONCE.FAIL](donce.fail.md), which counts it.\n\n\
             With the token of a queued DONCE.BEGIN it withdraws that request. A copy of it that comes later, within \
             `dsync.rejoin-ms`, is answered `UNBLOCKED` and not queued.",
            &[Session {
                shows: "the next worker makes the same attempt",
                lines: &[
                    "{hold}",
                    "DONCE.RELEASE jobs:1 a-41",
                    "DONCE.BEGIN jobs:1 TOKEN b-72",
                ],
            }],
        ),
    };
    Manual {
        text,
        sessions,
        see_also: match family {
            Family::Lock => &["DLOCK.ACQUIRE", "DLOCK.RENEW", "DLOCK.REVOKE"],
            Family::Semaphore => &["DSEM.ACQUIRE", "DSEM.RENEW", "DSEM.REVOKE"],
            Family::Group => &["DWG.ADD", "DWG.DONE", "DWG.REVOKE"],
            Family::Once => &["DONCE.BEGIN", "DONCE.DONE", "DONCE.FAIL"],
        },
    }
}

pub(super) const fn renew(family: Family) -> Manual {
    Manual {
        text: match family {
            Family::Lock => {
                "Renew every third of the lease while you work. The new lease begins now; without `EX` and `PX` it \
                 is as long as the last one. A hold whose lease has run out can still be renewed until the server has \
                 ended it.\n\n\
                 0 means that the hold is **lost** and another client may have the lock: stop the work. Stop it as well \
                 when a whole lease has passed on your own clock since you sent the last renewal that was answered 1."
            }
            Family::Semaphore => {
                "Renew every third of the lease while you work. The new lease begins now; without `EX` and `PX` it \
                 is as long as the last one. A hold whose lease has run out can still be renewed until the server has \
                 ended it.\n\n\
                 0 means that the hold is **lost** and its permits may be another client's: stop the work. Stop it as \
                 well when a whole lease has passed on your own clock since you sent the last renewal that was \
                 answered 1."
            }
            Family::Group => {
                "Renew every third of the lease while the member works. The new lease begins now; without `EX` and \
                 `PX` it is as long as the last one. A membership whose lease has run out can still be renewed until \
                 the server has ended it.\n\n\
                 0 means that the membership is **lost**: the group counts it as lapsed, and DWG.DONE with its token \
                 counts nothing."
            }
            Family::Once => {
                "Renew every third of the lease while you do the work. The new lease begins now; without `EX` and \
                 `PX` it is as long as the last one. A run whose lease has run out can still be renewed until the \
                 server has ended it.\n\n\
                 0 means that the run is **lost** and another worker may have begun the next attempt: stop the work."
            }
        },
        sessions: &[],
        see_also: match family {
            Family::Lock => &["DLOCK.ACQUIRE", "DLOCK.CHECK", "DLOCK.RELEASE"],
            Family::Semaphore => &["DSEM.ACQUIRE", "DSEM.CHECK", "DSEM.RELEASE"],
            Family::Group => &["DWG.ADD", "DWG.CHECK", "DWG.DONE"],
            Family::Once => &["DONCE.BEGIN", "DONCE.CHECK", "DONCE.DONE"],
        },
    }
}

pub(super) const fn check(family: Family) -> Manual {
    Manual {
        text: "Tells a holder, or a program that was given the token, whether the token still holds the key. It changes \
               nothing: it does not renew, and a hold that is overdue is not ended by it. The answer may be out of date \
               when it arrives, so it protects nothing by itself: let the resource refuse lower fences.\n\n\
               A replica answers from the deadline that its primary sent and from its own wall clock.",
        sessions: &[],
        see_also: match family {
            Family::Lock => &["DLOCK.RENEW", "DLOCK.INFO"],
            Family::Semaphore => &["DSEM.RENEW", "DSEM.INFO"],
            Family::Group => &["DWG.RENEW", "DWG.INFO"],
            Family::Once => &["DONCE.RENEW", "DONCE.INFO", "DONCE.GET"],
        },
    }
}

pub(super) const fn revoke(family: Family) -> Manual {
    Manual {
        text: match family {
            Family::Lock | Family::Semaphore => {
                "For operators: takes a hold away from a client that is stuck. The fence is in the output of \
                 [{family}.INFO]({page}.info.md) and of [DSYNC.HOLDS](dsync.holds.md). The next in line is granted at \
                 once; to let nobody in yet, [PAUSE]({page}.pause.md) the key first.\n\n\
                 The holder's program goes on: it learns of the loss at its next RENEW, which is answered 0, and a \
                 resource that checks fences refuses it from the next grant on.\n\n\
                 With the number of a kept place (`number` in INFO) it withdraws that place."
            }
            Family::Group => {
                "For operators: ends the membership of a client that is stuck. The group counts it as lapsed, so \
                 a total that [DWG.EXPECT](dwg.expect.md) declared stays owed. The fence is in the output of \
                 [DWG.INFO](dwg.info.md) and of [DSYNC.HOLDS](dsync.holds.md).\n\n\
                 The member's program goes on: it learns of the loss at its next RENEW, which is answered 0.\n\n\
                 With the number of a kept place (`number` in INFO) it withdraws that place."
            }
            Family::Once => {
                "For operators: takes the work away from a client that is stuck. The attempt counts, with the \
                 reason `revoked`, and the next in line begins at once; to let nobody begin yet, \
                 [PAUSE](donce.pause.md) the key first. The fence is in the output of [DONCE.INFO](donce.info.md) and \
                 of [DSYNC.HOLDS](dsync.holds.md).\n\n\
                 The worker's program goes on: it learns of the loss at its next RENEW, DONE or FAIL, which are \
                 answered 0.\n\n\
                 With the number of a kept place (`number` in INFO) it withdraws that place."
            }
        },
        sessions: &[],
        see_also: match family {
            Family::Lock => &["DLOCK.INFO", "DLOCK.PAUSE", "DSYNC.HOLDS"],
            Family::Semaphore => &["DSEM.INFO", "DSEM.PAUSE", "DSYNC.HOLDS"],
            Family::Group => &["DWG.INFO", "DWG.PAUSE", "DSYNC.HOLDS"],
            Family::Once => &["DONCE.INFO", "DONCE.PAUSE", "DSYNC.HOLDS"],
        },
    }
}

pub(super) const fn pause(family: Family) -> Manual {
    Manual {
        text: "For operators: the stop button of one key. Until the time is over nobody is granted anything there: \
               requests with `BLOCK` or `QUEUE` queue, tries are answered null. It ends no hold: leases lapse, and \
               holders renew and release as ever. PAUSE again replaces the pause, also by a shorter one; 0 goes on at \
               once. At the end the queue is served from its head without any command.\n\n\
               In an incident: PAUSE, then REVOKE what is stuck, look and repair, then PAUSE with 0. The pause runs on \
               the wall clock, is replicated and saved, and is forgotten with `DEL key`.",
        sessions: match family {
            Family::Lock => &[Session {
                shows: "nobody is granted until the pause is over",
                lines: &[
                    "DLOCK.PAUSE jobs:1 60000",
                    "DLOCK.ACQUIRE jobs:1 TOKEN a-41",
                    "DLOCK.PAUSE jobs:1 0",
                    "DLOCK.ACQUIRE jobs:1 TOKEN a-41",
                ],
            }],
            Family::Semaphore => &[Session {
                shows: "nobody is granted until the pause is over",
                lines: &[
                    "DSEM.PAUSE jobs:1 60000",
                    "DSEM.ACQUIRE jobs:1 LIMIT 2 TOKEN a-41",
                    "DSEM.PAUSE jobs:1 0",
                    "DSEM.ACQUIRE jobs:1 LIMIT 2 TOKEN a-41",
                ],
            }],
            Family::Group => &[Session {
                shows: "nobody is added until the pause is over",
                lines: &[
                    "DWG.PAUSE jobs:1 60000",
                    "DWG.ADD jobs:1 TOKEN a-41",
                    "DWG.PAUSE jobs:1 0",
                    "DWG.ADD jobs:1 TOKEN a-41",
                ],
            }],
            Family::Once => &[Session {
                shows: "nobody begins until the pause is over",
                lines: &[
                    "DONCE.PAUSE jobs:1 60000",
                    "DONCE.BEGIN jobs:1 TOKEN a-41",
                    "DONCE.PAUSE jobs:1 0",
                    "DONCE.BEGIN jobs:1 TOKEN a-41",
                ],
            }],
        },
        see_also: match family {
            Family::Lock => &["DLOCK.REVOKE", "DLOCK.INFO"],
            Family::Semaphore => &["DSEM.REVOKE", "DSEM.INFO", "DSEM.LIMIT"],
            Family::Group => &["DWG.REVOKE", "DWG.INFO"],
            Family::Once => &["DONCE.REVOKE", "DONCE.INFO"],
        },
    }
}

pub(super) const fn info(family: Family) -> Manual {
    Manual {
        text: "Shows people what a key is doing: who holds it, who waits, since when, and how much lease is left. It \
               changes nothing and never shows a token: operators name a hold by its fence. The lists begin with the \
               oldest holds and with the first in line. `client` is the id that `CLIENT LIST ID` takes.\n\n\
               A replica knows the holds and the kept places, but no other waiters: `waiters` and `longest-wait-ms` \
               are the text `unknown on a replica` there.",
        sessions: &[],
        see_also: match family {
            Family::Lock => &[
                "DLOCK.REVOKE",
                "DLOCK.CHECK",
                "DSYNC.CONTENDED",
                "DSYNC.HOLDS",
            ],
            Family::Semaphore => &[
                "DSEM.REVOKE",
                "DSEM.LIMIT",
                "DSYNC.CONTENDED",
                "DSYNC.HOLDS",
            ],
            Family::Group => &["DWG.REVOKE", "DWG.WAIT", "DSYNC.CONTENDED", "DSYNC.HOLDS"],
            Family::Once => &[
                "DONCE.REVOKE",
                "DONCE.GET",
                "DSYNC.CONTENDED",
                "DSYNC.HOLDS",
            ],
        },
    }
}
