//! What the cluster tests share: one hold in each family, requests to an importing node, and how a wait ends when a
//! slot, a role or the whole cluster changes.

use crate::support::steps::*;
use crate::support::*;

pub const LOCK: Family = Family::Lock;

pub const SEMAPHORE: Family = Family::Semaphore;

/// A lock, a semaphore with one permit, a group with one member, and a work-once key.
pub const FAMILIES: [Family; 4] = Family::ALL;

/// The token and the fence of a grant.
#[track_caller]
pub fn grant_of(family: Family, reply: &Reply) -> (String, u64) {
    match reply {
        Reply::Array(items) if family == Family::Once => match items.as_slice() {
            [run, hold @ .., _attempt] if *run == "RUN" => Reply::Array(hold.to_vec()).grant(),
            _ => panic!("expected RUN, received {reply:?}"),
        },
        _ => reply.grant(),
    }
}

/// Asserts that this request was granted to this token; returns the fence.
#[track_caller]
pub fn fence_of(family: Family, reply: &Reply, token: &str) -> u64 {
    let (granted, fence) = grant_of(family, reply);
    assert_eq!(granted, token, "{family:?}");
    fence
}

/// Asserts that a waiter gets this error as its only reply, and that its connection stays open.
#[track_caller]
pub fn turned_away(waiter: &mut Client, code: &str) {
    let reply = waiter.reply();
    assert!(
        matches!(&reply, Reply::Error(text) if text.starts_with(code)),
        "expected {code}, received {reply:?}"
    );
    expect_no_more(waiter);
}

/// Sends a request to a node that imports the key's slot; returns its reply.
#[track_caller]
pub fn ask_asking(client: &mut Client, line: impl AsRef<str>) -> Reply {
    let replies = client.ask_all(["ASKING", line.as_ref()]);
    assert_eq!(replies[0], "OK", "{replies:?}");
    replies[1].clone()
}

/// A new connection that waits with this request at a node that imports the key's slot.
#[track_caller]
pub fn waiting_asking(server: &Server, line: impl AsRef<str>) -> Client {
    let mut client = server.connect();
    assert_eq!(client.ask("ASKING"), "OK");
    client.wait_on(server, line);
    client
}

/// How a wait ended in a cluster, and whether the connection was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitEnd {
    Granted(u64),
    /// `-MOVED`, and the connection stays open.
    Moved,
    /// `-UNBLOCKED`, and the connection is closed.
    UnblockedAndClosed,
    /// The connection was closed without a reply.
    Closed,
}

/// Waits for the end of a wait. Panics for two replies, for no reply in time, and for an end not listed in [`WaitEnd`].
#[track_caller]
pub fn end_of(family: Family, waiter: &mut Client) -> WaitEnd {
    let first = match waiter.recv_or_closed(SOON) {
        Ok(Some(reply)) => reply,
        Ok(None) => panic!("a waiter that is never answered"),
        Err(Closed) => return WaitEnd::Closed,
    };
    // The next reply is that of ECHO, unless the waiter was answered twice or its connection is closed.
    let next = waiter.try_call(&["ECHO", "next"]);
    assert!(
        next.as_ref().is_none_or(|reply| *reply == "next"),
        "two replies: {first:?} and {next:?}"
    );
    match (&first, next) {
        (Reply::Error(text), Some(_)) if text.starts_with("MOVED ") => WaitEnd::Moved,
        (Reply::Error(text), None) if text.starts_with("UNBLOCKED ") => WaitEnd::UnblockedAndClosed,
        (Reply::Array(_), Some(_)) => WaitEnd::Granted(grant_of(family, &first).1),
        (_, next) => panic!("ended with {first:?}, then {next:?}"),
    }
}
