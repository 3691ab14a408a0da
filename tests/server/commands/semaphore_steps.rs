//! Steps that the tests of semaphores share. Their semaphore is the key `sem`.

use crate::support::*;

/// Asserts an error that begins with the first of the parts and contains all of them.
#[track_caller]
pub fn assert_error(reply: &Reply, parts: &[&str]) {
    let text = reply.error();
    assert!(
        parts.iter().all(|part| text.contains(part)),
        "{parts:?} in {text:?}"
    );
    assert!(
        text.starts_with(parts[0]),
        "{text:?} begins with {}",
        parts[0]
    );
}

/// A number of `DSEM.INFO`.
#[track_caller]
pub fn info(client: &mut Client, field: &str) -> i64 {
    client.ask("DSEM.INFO sem").field(field).as_int()
}
