//! What COMMAND DOCS and COMMAND INFO tell of every command: redis-cli's hints and HELP, the arity that
//! the server enforces, the keys that cluster clients and ACL rules go by, and who may call it.
//!
//! Every argument is written once, here, and used by all commands that take it. The parsers are in
//! `options`; nothing but a test that sends what is documented keeps the two together.

use std::ffi::CStr;

use crate::module::redis::context::{Ctx, Level};
use crate::module::redis::docs::{
    Arg, ArgKind, Categories, Docs, KeyUse, add_categories, describe,
};
use crate::module::redis::probe;

/// Describes all commands, when they have been registered. One that is not fails the loading.
pub(super) fn describe_all(ctx: Ctx<'_>) -> Result<(), String> {
    let own = add_categories(
        ctx,
        &[
            c"dsync",
            c"dsync-worker",
            c"dsync-observer",
            c"dsync-operator",
        ],
    );
    if !own {
        ctx.log(
            Level::Debug,
            "no ACL categories of dsync's own on this server",
        );
    }
    let of_families = FAMILIES.into_iter().flat_map(of_all);
    of_families
        .chain(of_one())
        .chain(of_the_probe())
        .try_for_each(|docs| describe(ctx, &docs, c"0.1.0", own))
}

// Who may call a command. The server's categories follow from the flags, as they do for its own
// commands; the module's are for users that do one job: `worker` gets things done, `observer` looks,
// `operator` interferes.

const REQUEST: Categories = of(WORKER, "write blocking slow");
/// With something to store.
const STORE: Categories = of(WORKER, "write slow");
const WORK: Categories = of(WORKER, "write fast");
const CHECK: Categories = of("dsync dsync-worker dsync-observer", "read fast");
const LOOK: Categories = of("dsync dsync-observer dsync-operator", "read fast");
const SURVEY: Categories = of(OPERATOR, "read admin dangerous slow");
const SETTING: Categories = of(OPERATOR, "write admin dangerous slow");
const REVOKE: Categories = of(OPERATOR, "write admin dangerous fast");
/// No rule but `+@all`, or the name, lets anybody call it.
const INTERNAL: Categories = of("", "");

const WORKER: &str = "dsync dsync-worker";
const OPERATOR: &str = "dsync dsync-operator";

const fn of(own: &'static str, servers: &'static str) -> Categories {
    Categories { own, servers }
}

const KEY: Arg = Arg::new(c"key", ArgKind::Key);
const TOKEN: Arg = Arg::new(c"token", ArgKind::Text);
const TOKENS: Arg = TOKEN.multiple();
const FENCE: Arg = Arg::new(c"fence", ArgKind::Integer);
const JOBS: Arg = Arg::new(c"jobs", ArgKind::Integer);
const PACKED: Arg = Arg::new(c"packed", ArgKind::Text);
const CHANGES: Arg = Arg::new(c"change", ArgKind::Text).multiple();

const SHARED: Arg = word(c"shared", c"SHARED");
const LIMIT: Arg = number(c"limit", c"LIMIT");
const PERMITS: Arg = number(c"permits", c"PERMITS");
const MAX: Arg = number(c"attempts", c"MAX");
const BLOCK: Arg = number(c"milliseconds", c"BLOCK");
const CHOSEN_TOKEN: Arg = text(c"token", c"TOKEN");
const EPHEMERAL: Arg = word(c"ephemeral", c"EPHEMERAL");
const OWNER: Arg = text(c"text", c"OWNER");
const RESULT: Arg = text(c"value", c"RESULT");
const REASON: Arg = text(c"text", c"REASON");
const COUNT: Arg = number(c"count", c"COUNT");

/// A lease, or how long a result is kept.
const DURATION: Arg = Arg::new(
    c"duration",
    ArgKind::OneOf(&[
        Arg::new(c"seconds", ArgKind::Integer).token(c"EX"),
        Arg::new(c"milliseconds", ArgKind::Integer).token(c"PX"),
    ]),
)
.optional();

const PINNED: Arg = Arg::new(
    c"pinned",
    ArgKind::OneOf(&[
        Arg::new(c"limit", ArgKind::Integer),
        Arg::new(c"none", ArgKind::Word).token(c"NONE"),
    ]),
);

const fn word(name: &'static CStr, token: &'static CStr) -> Arg {
    Arg::new(name, ArgKind::Word).token(token).optional()
}

const fn number(name: &'static CStr, token: &'static CStr) -> Arg {
    Arg::new(name, ArgKind::Integer).token(token).optional()
}

const fn text(name: &'static CStr, token: &'static CStr) -> Arg {
    Arg::new(name, ArgKind::Text).token(token).optional()
}

// The costs are those of ordered maps. A key has its holds by fence, token and deadline, and its queue by
// rank and token; the server has all waiters by request, connection and moment, and all EPHEMERAL holds.

const REQUESTING: &str = "O(log(N)) with N the number of holds and waiters, for the request, for each waiter \
                          that is served (128 at most) and each overdue hold that is ended (1,024 at most)";
const ENDING: &str = "O(log(N)) with N the number of holds and waiters, for the hold and for each waiter that is \
                      served (128 at most)";
const STORING: &str = "O(log(N)+S) with N the number of holds and waiters and S the size of the text, for the run \
                       and for each waiter that is served (128 at most)";

/// A command's name starts with its family's.
#[derive(Clone, Copy)]
struct Family {
    name: &'static str,
    key: &'static str,
}

const FAMILIES: [Family; 4] = [
    Family {
        name: "DLOCK",
        key: "a lock",
    },
    Family {
        name: "DSEM",
        key: "a semaphore",
    },
    Family {
        name: "DWG",
        key: "a wait group",
    },
    Family {
        name: "DONCE",
        key: "a work-once key",
    },
];

/// The commands that every family has.
fn of_all(Family { name, key }: Family) -> [Docs; 5] {
    [
        Docs {
            name: format!("{name}.RELEASE"),
            summary: format!(
                "Ends a hold of {key} early, or withdraws a queued request, by its token."
            ),
            complexity: ENDING,
            key: KeyUse::Removes,
            tips: "",
            categories: WORK,
            args: &[KEY, TOKEN],
        },
        Docs {
            name: format!("{name}.RENEW"),
            summary: format!("Starts the lease of a hold of {key} anew, by its token."),
            complexity: ENDING,
            key: KeyUse::Changes,
            tips: "",
            categories: WORK,
            args: &[KEY, TOKEN, DURATION],
        },
        Docs {
            name: format!("{name}.CHECK"),
            summary: format!("Returns how many milliseconds of lease a token has left on {key}."),
            complexity: "O(log(N)) with N the number of holds of the key",
            key: KeyUse::Reads,
            tips: "nondeterministic_output",
            categories: CHECK,
            args: &[KEY, TOKEN],
        },
        Docs {
            name: format!("{name}.REVOKE"),
            summary: format!("Ends anybody's hold of {key}, by its fence."),
            complexity: ENDING,
            key: KeyUse::Removes,
            tips: "",
            categories: REVOKE,
            args: &[KEY, FENCE],
        },
        Docs {
            name: format!("{name}.INFO"),
            summary: format!("Returns who holds {key}, who waits for it, and since when."),
            complexity: "O(log(N)+C) with N the number of holds and waiters and C the COUNT",
            key: KeyUse::Reads,
            tips: "nondeterministic_output",
            categories: LOOK,
            args: &[KEY, COUNT],
        },
    ]
}

/// The commands that one family has, or none.
fn of_one() -> [Docs; 13] {
    [
        request(
            "DLOCK.ACQUIRE",
            "Acquires a hold of a lock, exclusive or shared, and may wait for it.",
            &[KEY, SHARED, DURATION, BLOCK, CHOSEN_TOKEN, EPHEMERAL, OWNER],
        ),
        request(
            "DSEM.ACQUIRE",
            "Acquires a hold of permits of a semaphore, and may wait for it.",
            &[KEY, LIMIT, PERMITS, DURATION, BLOCK, CHOSEN_TOKEN, EPHEMERAL, OWNER],
        ),
        Docs {
            name: "DSEM.LIMIT".to_owned(),
            summary: "Pins or unpins the limit of a semaphore, and returns the one in force before.".to_owned(),
            complexity: REQUESTING,
            key: KeyUse::ReadsAndChanges,
            tips: "",
            categories: SETTING,
            args: &[KEY, PINNED],
        },
        request(
            "DWG.ADD",
            "Adds a member to a wait group, and may wait until there is room.",
            &[KEY, LIMIT, DURATION, BLOCK, CHOSEN_TOKEN, EPHEMERAL, OWNER],
        ),
        Docs {
            name: "DWG.DONE".to_owned(),
            summary: "Ends members of a wait group, by their tokens, with their jobs done.".to_owned(),
            complexity: "O(M*log(N)) with M the number of tokens and N the number of holds and waiters, and O(log(N)) \
                         for each waiter that is served (128 at most)",
            key: KeyUse::Removes,
            tips: "",
            categories: WORK,
            args: &[KEY, TOKENS],
        },
        Docs {
            name: "DWG.WAIT".to_owned(),
            summary: "Returns how many members were done and lost once the round of a wait group is finished, \
                      and may wait for that."
                .to_owned(),
            complexity: REQUESTING,
            key: KeyUse::ReadsAndChanges,
            tips: "",
            categories: REQUEST,
            args: &[KEY, BLOCK],
        },
        Docs {
            name: "DWG.EXPECT".to_owned(),
            summary: "Declares how many jobs the round of a wait group has, and returns how many are still owed."
                .to_owned(),
            complexity: REQUESTING,
            key: KeyUse::ReadsAndChanges,
            tips: "",
            categories: STORE,
            args: &[KEY, JOBS],
        },
        request(
            "DONCE.BEGIN",
            "Begins work that is to be done once, or returns how it ended, and may wait for either.",
            &[KEY, MAX, DURATION, BLOCK, CHOSEN_TOKEN, EPHEMERAL, OWNER],
        ),
        Docs {
            name: "DONCE.DONE".to_owned(),
            summary: "Ends a run, by its token, with the work done, and keeps the result.".to_owned(),
            complexity: STORING,
            key: KeyUse::Changes,
            tips: "",
            categories: STORE,
            args: &[KEY, TOKEN, RESULT, DURATION],
        },
        Docs {
            name: "DONCE.FAIL".to_owned(),
            summary: "Ends a run, by its token, with the work still to be done.".to_owned(),
            complexity: STORING,
            key: KeyUse::Changes,
            tips: "",
            categories: STORE,
            args: &[KEY, TOKEN, REASON],
        },
        Docs {
            name: "DSYNC.CONTENDED".to_owned(),
            summary: "Returns the keys that have waiters, the longest wait first.".to_owned(),
            complexity: "O(N*log(N)) with N the number of keys that have waiters",
            key: KeyUse::NoKey,
            // Each node knows its own waiters; merging the lists by their last field is the client's.
            tips: "nondeterministic_output request_policy:all_shards response_policy:special",
            categories: SURVEY,
            args: &[COUNT],
        },
        Docs {
            name: "DSYNC.APPLY".to_owned(),
            summary: "Is refused: only dsync 0.1.0 wrote it; not for clients.".to_owned(),
            complexity: "O(1)",
            key: KeyUse::ReadsAndChanges,
            tips: "",
            categories: INTERNAL,
            args: &[KEY, CHANGES],
        },
        Docs {
            name: "DSYN".to_owned(),
            summary: "Carries out what another server decided; not for clients.".to_owned(),
            complexity: "O(M*log(N)) with M the number of changes and N the number of holds of the server",
            key: KeyUse::ReadsAndChanges,
            tips: "",
            categories: INTERNAL,
            args: &[KEY, PACKED],
        },
    ]
}

/// Of the command that there is only where the server must be asked by one.
fn of_the_probe() -> Option<Docs> {
    probe::is_a_command().then(|| Docs {
        name: "DSYNC.PROBE".to_owned(),
        summary: "Asks the server whether it accepts writes, and does nothing; not for clients."
            .to_owned(),
        complexity: "O(1)",
        key: KeyUse::ReadsAndChanges,
        tips: "",
        categories: INTERNAL,
        args: &[KEY],
    })
}

/// A request that may be granted a hold.
fn request(name: &str, summary: &str, args: &'static [Arg]) -> Docs {
    Docs {
        name: name.to_owned(),
        summary: summary.to_owned(),
        complexity: REQUESTING,
        key: KeyUse::ReadsAndChanges,
        tips: "nondeterministic_output",
        categories: REQUEST,
        args,
    }
}
