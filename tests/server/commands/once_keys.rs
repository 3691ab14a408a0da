//! Work-once keys as keys of the server: removed, renamed and overwritten.
//!
//! What is the same for all commands is in `every_command`.

use crate::commands::once_steps::*;
use crate::support::steps::*;
use crate::support::*;

#[test]
fn del_forgets_attempts_and_waiters_run_as_first_attempt() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DONCE.BEGIN job TOKEN a");
    client.ask("DONCE.FAIL job a REASON r");
    let before = run(&client.ask("DONCE.BEGIN job TOKEN b"));
    assert_eq!(before.attempt, 2);
    let mut first = server.waiting("DONCE.BEGIN job MAX 1 TOKEN c BLOCK 0");
    let mut second = server.waiting("DONCE.BEGIN job BLOCK 0");
    assert_eq!(client.ask("DEL job"), 1);
    let afresh = run(&first.reply());
    assert_eq!(afresh.attempt, 1);
    assert!(afresh.fence > before.fence);
    second.expect_silence(A_WHILE);
    assert!(about(&mut client, "job", "last-reason").is_nil());
    for line in ["DONCE.DONE job b", "DONCE.FAIL job b", "DONCE.RENEW job b"] {
        assert_eq!(client.ask(line), 0, "{line}");
    }
    assert_eq!(client.ask("DONCE.DONE job c RESULT r"), 1);
    assert_done(&second.reply(), Some(b"r"), 1);
    // A key that is removed after DONE forgets the result: the work may run again.
    assert_eq!(client.ask("UNLINK job"), 1);
    assert_eq!(client.ask("DONCE.DONE job c"), 0, "forgotten");
    assert_eq!(attempt(&client.ask("DONCE.BEGIN job TOKEN d")), 1);
    client.ask("FLUSHALL");
    assert_eq!(attempt(&client.ask("DONCE.BEGIN job TOKEN e")), 1);
}

#[test]
fn rename_moves_attempts_and_leaves_waiters() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DONCE.BEGIN job TOKEN a");
    client.ask("DONCE.FAIL job a");
    client.ask("DONCE.BEGIN job TOKEN b");
    let mut waiter = server.waiting("DONCE.BEGIN job BLOCK 0");
    assert_eq!(client.ask("RENAME job elsewhere"), "OK");
    assert_eq!(attempt(&waiter.reply()), 1);
    assert_eq!(attempts(&mut client, "elsewhere"), 2);
    assert_eq!(client.ask("DONCE.DONE elsewhere b RESULT r"), 1);
    assert_done(&client.ask("DONCE.BEGIN elsewhere"), Some(b"r"), 2);
}

#[test]
fn overwritten_once_key_answers_its_waiter_wrongtype() {
    let server = Server::start();
    let mut client = server.connect();
    client.ask("DONCE.BEGIN job TOKEN t");
    let other = client.ask("GET job");
    assert!(other.error().starts_with("WRONGTYPE "), "{other:?}");
    let mut waiter = server.waiting("DONCE.BEGIN job BLOCK 0");
    assert_eq!(client.ask("SET job x"), "OK");
    assert!(waiter.reply().error().starts_with("WRONGTYPE "));
}
