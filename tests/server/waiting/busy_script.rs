//! Connections that close while a script keeps the server busy: the server notices only afterwards.

use crate::support::steps::*;
use crate::support::*;

#[test]
fn connections_closed_during_busy_script_end_after_it() {
    let server = Server::builder()
        .config("busy-reply-threshold", 30)
        .config("appendonly", "yes")
        .start();
    let _replica = Server::builder().replica_of(&server).start();
    let (mut slow, mut client) = (server.connect(), server.connect());
    for _ in 0..3 {
        let (mut ephemeral, mut leaving, mut heir) =
            (server.connect(), server.connect(), server.connect());
        ephemeral.ask("DLOCK.ACQUIRE bound EPHEMERAL EX 60");
        leaving.begin("DLOCK.ACQUIRE bound BLOCK 0");
        server.wait_for_blocked(1);
        heir.begin("DLOCK.ACQUIRE bound BLOCK 0 TOKEN heir");
        server.wait_for_blocked(2);
        let script = format!(
            "redis.call('SET', KEYS[1], 1) {} return 'done'",
            busy_for(500)
        );
        send!(slow, "EVAL", script, 1, "x");
        eventually("a busy server", SOON, || client.ask("PING").is_error());
        ephemeral.close();
        leaving.close();
        assert_eq!(slow.recv(SOON).expect("the script ends"), "done");
        assert_eq!(heir.granted().0, "heir");
        assert_eq!(client.ask("DLOCK.RELEASE bound heir"), 1);
    }
    assert_calm(&server);
}
