//! Steps that the tests of wait groups share. Their group is the key `group`.

use crate::support::*;

/// Adds a member with a token of the server's; returns the token.
#[track_caller]
pub fn add(client: &mut Client) -> String {
    client.ask("DWG.ADD group").grant().0
}

/// Asserts the reply `[done, lapsed]` of WAIT.
#[track_caller]
pub fn assert_tally(reply: &Reply, done: i64, lapsed: i64) {
    let expected = Reply::Array(vec![Reply::Int(done), Reply::Int(lapsed)]);
    assert_eq!(*reply, expected, "[done, lapsed]");
}

/// The state that `DWG.INFO` shows.
#[track_caller]
pub fn state(client: &mut Client) -> String {
    client
        .ask("DWG.INFO group")
        .field("state")
        .as_str()
        .to_owned()
}
