//! Steps on work-once keys that several files take: what BEGIN answers, and what `DONCE.INFO` says of a key.

use crate::support::steps::*;
use crate::support::*;

/// The reply `["RUN", token, fence, attempt]` of BEGIN: the client that gets it does the work.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunGrant {
    pub token: String,
    pub fence: u64,
    pub attempt: i64,
}

/// Reads `["RUN", token, fence, attempt]`; panics on any other reply.
#[track_caller]
pub fn run(reply: &Reply) -> RunGrant {
    match reply {
        Reply::Array(items) => match items.as_slice() {
            [
                word,
                token @ Reply::Bulk(_),
                Reply::Int(fence),
                Reply::Int(attempt),
            ] if *word == "RUN" && *fence > 0 => RunGrant {
                token: token.as_str().to_owned(),
                fence: fence.unsigned_abs(),
                attempt: *attempt,
            },
            _ => panic!("expected [RUN, token, fence, attempt], received {reply:?}"),
        },
        other => panic!("expected [RUN, token, fence, attempt], received {other:?}"),
    }
}

/// The attempt of a RUN reply; panics on any other reply.
#[track_caller]
pub fn attempt(reply: &Reply) -> i64 {
    run(reply).attempt
}

/// Asserts `["DONE", result, attempt]`.
#[track_caller]
pub fn assert_done(reply: &Reply, result: Option<&[u8]>, attempt: i64) {
    let result = result.map_or(Reply::Nil, |result| Reply::Bulk(result.to_vec()));
    let done = [Reply::Bulk(b"DONE".to_vec()), result, Reply::Int(attempt)];
    assert_eq!(*reply, Reply::Array(done.to_vec()));
}

/// Asserts `["FAILED", reason, attempts]`.
#[track_caller]
pub fn assert_failed(reply: &Reply, reason: &str, attempts: i64) {
    let reason = Reply::Bulk(reason.as_bytes().to_vec());
    let failed = [
        Reply::Bulk(b"FAILED".to_vec()),
        reason,
        Reply::Int(attempts),
    ];
    assert_eq!(*reply, Reply::Array(failed.to_vec()));
}

/// A field of `DONCE.INFO`.
pub fn about(client: &mut Client, key: &str, field: &str) -> Reply {
    client.ask(format!("DONCE.INFO {key}")).field(field).clone()
}

/// How many attempts `DONCE.INFO` counts.
pub fn attempts(client: &mut Client, key: &str) -> i64 {
    count(client, "DONCE.INFO", key, "attempts")
}

/// Waits until no run of the key is left: its state is `idle`.
#[track_caller]
pub fn wait_until_idle(client: &mut Client, key: &str) {
    eventually(&format!("the end of the run of {key}"), SOON, || {
        about(client, key, "state") == "idle"
    });
}
