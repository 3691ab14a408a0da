//! DWG: wait groups. RELEASE, RENEW, CHECK, REVOKE and INFO are in `holding`.

use super::acquire::{REQUEST_COMPLEXITY, REQUEST_PROPERTIES, acquire, client, wait};
use super::arguments::{
    BLOCK, EPHEMERAL, JOBS, KEY, LEASE, LIMIT, OWNER, TOKEN_OPTION, TOKENS, WAITING,
};
use super::grammar::Number;
#[cfg(test)]
use super::manual::{Manual, Session};
use super::replies::{
    Form, GRANT, NO_MEMORY, QUEUE_FULL, ROUND_UNBLOCKED, ReplyForm, SYNTAX, UNBLOCKED, WRONG_TYPE,
    queued,
};
use super::row::{Call, CommandName, CommandResult, Properties, Row, Run, User};
use crate::module::parking::respond;
use crate::module::redis::docs::KeyUse;
use crate::module::reply::count;
use crate::module::run::run;
use dsync_engine::Family;
use dsync_engine::types::{Claim, Token};

/// ```text
/// DWG.ADD key [LIMIT limit] [EX seconds | PX milliseconds] [BLOCK milliseconds | QUEUE milliseconds]
///     [TOKEN token] [EPHEMERAL] [OWNER text]
/// ```
pub(super) const ADD: Row = Row {
    name: CommandName::of(Family::Group, "ADD"),
    summary: "Adds a member to {key}, and may wait until there is room.",
    properties: REQUEST_PROPERTIES,
    args: &[KEY, LIMIT, LEASE, WAITING, TOKEN_OPTION, EPHEMERAL, OWNER],
    replies: &[
        ReplyForm {
            when: "granted",
            form: GRANT,
            before: &[],
            example: "jobs:1 LIMIT 8 TOKEN a-41",
        },
        ReplyForm {
            when: "LIMIT members live or others wait, and there is no BLOCK or it ran out",
            form: Form::Null,
            before: &["{hold}"],
            example: "jobs:1 LIMIT 1 TOKEN b-72",
        },
        queued("jobs:1 LIMIT 1 TOKEN b-72 QUEUE 30000"),
    ],
    errors: &[SYNTAX, WRONG_TYPE, QUEUE_FULL, NO_MEMORY, UNBLOCKED],
    #[cfg(test)]
    manual: Manual {
        text: "Adds a worker, or a job, to a group that somebody waits for with [DWG.WAIT](dwg.wait.md). A \
               membership is a hold with a lease: a member that dies is counted as lost when its lease ends, so \
               nobody waits for it for ever. End it with [DWG.DONE](dwg.done.md), and renew it with \
               [DWG.RENEW](dwg.renew.md) every third of the lease.\n\n\
               `LIMIT` makes the group a gate: with `BLOCK` or `QUEUE` the request waits until fewer than so many \
               members live. The limit stays with the group, and the newest that was given counts. A group that \
               was never given one has no gate. The first ADD after a finished round begins a new one, at zero.\n\n\
               Send a fresh `TOKEN`, a UUID, with every request that waits. `QUEUE` keeps a place in the queue \
               without occupying the connection: see [waiting](../waiting.md). It needs `TOKEN` and excludes \
               `EPHEMERAL`. \
               In scripts and functions `EPHEMERAL` is an error.",
        sessions: &[Session {
            shows: "at most one member at a time",
            lines: &[
                "DWG.ADD jobs:1 LIMIT 1 TOKEN a-41",
                "B> DWG.ADD jobs:1 LIMIT 1 TOKEN b-72 BLOCK 60000",
                "DWG.DONE jobs:1 a-41",
                "B",
            ],
        }],
        see_also: &["DWG.DONE", "DWG.EXPECT", "DWG.WAIT", "DWG.RENEW"],
    },
    run: Run::OnKey(Family::Group, |call| acquire(call, Claim::Member)),
};

/// ```text
/// DWG.DONE key token [token ...]
/// ```
pub(super) const DONE: Row = Row {
    name: CommandName::of(Family::Group, "DONE"),
    summary: "Ends members of {key}, by their tokens, and counts their jobs as done.",
    properties: Properties {
        since: "0.1.0",
        complexity: "O(M*log(N)) with M the number of tokens and N the number of holds and waiters, and O(log(N)) \
                 for each waiter that is served (128 at most)",
        flags: c"write fast",
        key: KeyUse::Removes,
        tips: "",
        users: &[User::Worker],
    },
    args: &[KEY, TOKENS],
    replies: &[ReplyForm {
        when: "always: how many of the tokens ended a live membership",
        form: Form::Integer,
        before: &["{hold}"],
        example: "jobs:1 a-41 b-72",
    }],
    errors: &[SYNTAX, WRONG_TYPE],
    #[cfg(test)]
    manual: Manual {
        text: "Ends members whose jobs are done. When the last one ends, and as many are done as \
               [DWG.EXPECT](dwg.expect.md) declared, the round is finished and every DWG.WAIT is answered.\n\n\
               A token counts once: it counts nothing when it is done already, has lapsed, or was revoked. So a \
               repetition is harmless, and a number below that of the tokens says that some of them were lost. A \
               member that gives up without finishing uses [DWG.RELEASE](dwg.release.md).",
        sessions: &[Session {
            shows: "a repetition counts nothing",
            lines: &["{hold}", "DWG.DONE jobs:1 a-41", "DWG.DONE jobs:1 a-41"],
        }],
        see_also: &["DWG.ADD", "DWG.WAIT", "DWG.RELEASE"],
    },
    run: Run::OnKey(Family::Group, done),
};

fn done(call: &Call<'_>) -> CommandResult {
    let tokens: Vec<Token> = call.args.iter().skip(2).filter_map(Token::parse).collect();
    let ended = run(call.ctx, &call.key, |visit| visit.done(&tokens))??;
    call.ctx.integer(count(ended));
    Ok(())
}

/// ```text
/// DWG.WAIT key [BLOCK milliseconds]
/// ```
///
/// Flagged as a write because it ends overdue holds that it finds, and their end is replicated. So replicas refuse it.
pub(super) const WAIT: Row = Row {
    name: CommandName::of(Family::Group, "WAIT"),
    summary: "Returns how many members were done and lost once the round of {key} is finished, and may wait for that.",
    properties: Properties {
        since: "0.1.0",
        complexity: REQUEST_COMPLEXITY,
        flags: c"write blocking",
        key: KeyUse::ReadsAndChanges,
        tips: "",
        users: &[User::Worker],
    },
    args: &[KEY, BLOCK],
    replies: &[
        ReplyForm {
            when: "the round is finished: how many members were done, and how many were lost",
            form: Form::Array(&[("done", Form::Integer), ("lapsed", Form::Integer)]),
            before: &["{hold}", "DWG.DONE jobs:1 a-41"],
            example: "jobs:1 BLOCK 0",
        },
        ReplyForm {
            when: "the round is not finished, and there is no BLOCK or it ran out",
            form: Form::Null,
            before: &["{hold}"],
            example: "jobs:1",
        },
    ],
    errors: &[SYNTAX, WRONG_TYPE, QUEUE_FULL, ROUND_UNBLOCKED],
    #[cfg(test)]
    manual: Manual {
        text: "Waits until all work of a round is finished: no member lives, nobody is queued to be added and, \
               where [DWG.EXPECT](dwg.expect.md) declared a total, that many are done. Any number of clients may \
               wait. `lapsed` above 0 means that members were lost: look, and start their jobs again.\n\n\
               A group that does not exist answers 0 and 0, so declare the total before you start the workers: a \
               WAIT that comes before the first ADD then waits. After the round has finished its tally can be \
               asked for until `dsync.group-keep-ms` has passed or the next round begins.\n\n\
               WAIT has no token: a repetition waits anew, which does no harm. With `BLOCK` give the client a \
               read timeout longer than that. A replica refuses WAIT with `READONLY`.",
        sessions: &[
            Session {
                shows: "answered when the last member is done",
                lines: &[
                    "{hold}",
                    "B> DWG.WAIT jobs:1 BLOCK 60000",
                    "DWG.DONE jobs:1 a-41",
                    "B",
                ],
            },
            Session {
                shows: "a group that does not exist has nothing to wait for",
                lines: &["DWG.WAIT jobs:1"],
            },
        ],
        see_also: &["DWG.EXPECT", "DWG.ADD", "DWG.DONE"],
    },
    run: Run::OnKey(Family::Group, wait_for_all),
};

fn wait_for_all(call: &Call<'_>) -> CommandResult {
    let facts = call.ctx.facts();
    let block_ms = call
        .parsed
        .number(Number::BlockMs)
        .filter(|_| facts.may_block());
    let client = client(call.ctx, facts);
    let reply = run(call.ctx, &call.key, |visit| {
        visit.wait(block_ms.map(|ms| wait(ms, visit.now())), client)
    })?;
    respond(call.ctx, call.key.bytes(), reply);
    Ok(())
}

/// ```text
/// DWG.EXPECT key jobs
/// ```
pub(super) const EXPECT: Row = Row {
    name: CommandName::of(Family::Group, "EXPECT"),
    summary: "Declares how many jobs the round of {key} has, and returns how many are still owed.",
    properties: Properties {
        since: "0.1.0",
        complexity: REQUEST_COMPLEXITY,
        flags: c"write deny-oom",
        key: KeyUse::ReadsAndChanges,
        tips: "",
        users: &[User::Worker],
    },
    args: &[KEY, JOBS],
    replies: &[ReplyForm {
        when: "always: how many jobs are still owed",
        form: Form::Integer,
        before: &[],
        example: "jobs:1 2",
    }],
    errors: &[SYNTAX, WRONG_TYPE],
    #[cfg(test)]
    manual: Manual {
        text: "Declares how many jobs a round has before the workers have started, so that \
               [DWG.WAIT](dwg.wait.md) cannot be answered while some of them have not been added yet. Send it \
               before the first WAIT.\n\n\
               It may be sent again at any time with another total. At or below what is done, the round finishes \
               as soon as no member lives and nobody is queued. The jobs of members that lapsed or were released \
               stay owed until somebody adds and finishes them. After a finished round it begins a new one, at \
               zero.",
        sessions: &[Session {
            shows: "the round ends when two jobs are done",
            lines: &[
                "DWG.EXPECT jobs:1 2",
                "DWG.ADD jobs:1 TOKEN a-41",
                "DWG.DONE jobs:1 a-41",
                "DWG.WAIT jobs:1",
                "DWG.ADD jobs:1 TOKEN b-72",
                "DWG.DONE jobs:1 b-72",
                "DWG.WAIT jobs:1",
            ],
        }],
        see_also: &["DWG.WAIT", "DWG.ADD", "DWG.DONE"],
    },
    run: Run::OnKey(Family::Group, expect),
};

fn expect(call: &Call<'_>) -> CommandResult {
    // The parser has made sure that there is a number of jobs.
    let jobs = call.parsed.number_u32(Number::Jobs).unwrap_or_default();
    let owed = run(call.ctx, &call.key, |visit| visit.expect(jobs))??;
    call.ctx.integer(count(owed));
    Ok(())
}
