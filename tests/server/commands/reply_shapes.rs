//! The types of all commands' replies in RESP2 and RESP3, and WRONGTYPE for keys of another type.

use crate::commands::grammar_table::*;
use crate::support::steps::*;
use crate::support::*;

#[test]
fn every_command_refuses_a_key_of_another_type() {
    let mut bench = Bench::set_up();
    call!(bench.client, "RPUSH", "a-list", "item");
    call!(bench.client, "XADD", "a-stream", "*", "field", "value");
    bench.before = bench.now();
    for row in &COMMANDS {
        let own = FAMILIES[row.family].key;
        for key in KEYS
            .iter()
            .chain(&["a-list", "a-stream"])
            .filter(|key| **key != own)
        {
            bench.refused(&request(&[row.name, key], row.args), &["WRONGTYPE "]);
            if ["ACQUIRE", "ADD", "WAIT", "BEGIN"]
                .iter()
                .any(|verb| row.name.ends_with(verb))
            {
                let whole = request(&request(&[row.name, key], row.args), &["BLOCK", "0"]);
                bench.refused(&whole, &["WRONGTYPE "]);
            }
        }
    }
    wait_for_blocked(&bench.server, 0);
}

#[test]
fn every_command_has_the_same_replies_in_resp2_and_resp3() {
    let server = Server::start();
    for resp3 in [false, true] {
        let mut client = if resp3 {
            server.connect_resp3()
        } else {
            server.connect()
        };
        call!(client, "FLUSHALL");
        let map = |reply: &Reply| {
            let fits = if resp3 {
                matches!(reply, Reply::Map(_))
            } else {
                matches!(reply, Reply::Array(_))
            };
            assert!(fits, "RESP3 {resp3}: {reply:?}");
        };
        for (name, extra) in [
            ("DLOCK", &[][..]),
            ("DSEM", &["LIMIT", "1"]),
            ("DWG", &["LIMIT", "1"]),
        ] {
            let command = |verb: &str| format!("{name}.{verb}");
            let acquire = command(if name == "DWG" { "ADD" } else { "ACQUIRE" });
            let key = name;
            let with_limit = |rest: &[&str]| {
                let mut whole = vec![acquire.clone(), key.to_owned()];
                whole.extend(extra.iter().chain(rest).map(|arg| (*arg).to_owned()));
                whole
            };
            assert!(call!(client, command("INFO"), key).is_nil(), "absent");
            let reply = client.call(&with_limit(&["OWNER", "me"]));
            assert!(
                matches!(&reply, Reply::Array(items) if matches!(items[..], [Reply::Bulk(_), Reply::Int(_)]))
            );
            let (token, _) = reply.grant();
            assert!(client.call(&with_limit(&[])).is_nil(), "a try");
            assert!(
                client.call(&with_limit(&["BLOCK", "1"])).is_nil(),
                "a wait that runs out"
            );
            assert!(
                matches!(call!(client, command("CHECK"), key, &token), Reply::Int(left) if left > 0)
            );
            assert_eq!(call!(client, command("RENEW"), key, &token), Reply::Int(1));
            let info = call!(client, command("INFO"), key);
            map(&info);
            map(&info.field("first-holders").as_array()[0]);
            let mut waiter = if resp3 {
                server.connect_resp3()
            } else {
                server.connect()
            };
            waiter.send(&with_limit(&["BLOCK", "0"]));
            wait_for_blocked(&server, 1);
            map(&call!(client, command("INFO"), key)
                .field("first-waiters")
                .as_array()[0]);
            assert_eq!(
                call!(client, command("RELEASE"), key, &token),
                Reply::Int(1)
            );
            let reply = waiter.recv(SOON).expect("granted");
            assert!(
                matches!(&reply, Reply::Array(items) if matches!(items[..], [Reply::Bulk(_), Reply::Int(_)]))
            );
            let (token, fence) = reply.grant();
            assert_eq!(call!(client, command("REVOKE"), key, fence), Reply::Int(1));
            assert_eq!(call!(client, command("REVOKE"), key, fence), Reply::Int(0));
            for verb in ["RELEASE", "RENEW", "CHECK"] {
                assert_eq!(
                    call!(client, command(verb), key, &token),
                    Reply::Int(0),
                    "{verb}"
                );
            }
        }
        assert_eq!(call!(client, "DSEM.LIMIT", "s", 2), Reply::Int(-1));
        assert_eq!(call!(client, "DSEM.LIMIT", "s", "NONE"), Reply::Int(2));
        let finished = |done| Reply::Array(vec![Reply::Int(done), Reply::Int(0)]);
        assert_eq!(call!(client, "DWG.WAIT", "g"), finished(0));
        assert_eq!(call!(client, "DWG.EXPECT", "g", 2), Reply::Int(2));
        assert!(call!(client, "DWG.WAIT", "g").is_nil());
        assert!(call!(client, "DWG.WAIT", "g", "BLOCK", 1).is_nil());
        let tokens = [(); 2].map(|()| call!(client, "DWG.ADD", "g").grant().0);
        let mut waiter = if resp3 {
            server.connect_resp3()
        } else {
            server.connect()
        };
        waiter.send(&["DWG.WAIT", "g", "BLOCK", "0"]);
        wait_for_blocked(&server, 1);
        assert_eq!(
            call!(client, "DWG.DONE", "g", &tokens[0], &tokens[1], "x"),
            Reply::Int(2)
        );
        assert_eq!(waiter.recv(SOON).expect("finished"), finished(2));
        assert_eq!(call!(client, "DWG.WAIT", "g"), finished(2));

        let once = |words: &[&str]| {
            let begin = |words: &[&str]| [&["DONCE.BEGIN", "o"], words].concat().join(" ");
            begin(words)
                .split(' ')
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let run = client.call(&once(&["TOKEN", "one"]));
        assert!(
            matches!(run.as_array(), [word, Reply::Bulk(_), Reply::Int(_), Reply::Int(1)] if *word == "RUN"),
            "{run:?}"
        );
        assert!(client.call(&once(&[])).is_nil(), "a run is under way");
        assert!(client.call(&once(&["BLOCK", "1"])).is_nil());
        assert_eq!(
            call!(client, "DONCE.FAIL", "o", "one", "REASON", "why"),
            Reply::Int(1)
        );
        assert_eq!(call!(client, "DONCE.FAIL", "o", "one"), Reply::Int(0));
        let text = |text: &str| Reply::Bulk(text.as_bytes().to_vec());
        let failed = Reply::Array(vec![text("FAILED"), text("why"), Reply::Int(1)]);
        assert_eq!(client.call(&once(&["MAX", "1"])), failed);
        let run = client.call(&once(&["TOKEN", "two"]));
        assert_eq!(run.as_array()[3], Reply::Int(2));
        map(&call!(client, "DONCE.INFO", "o"));
        assert_eq!(call!(client, "DONCE.DONE", "o", "two"), Reply::Int(1));
        assert_eq!(call!(client, "DONCE.DONE", "o", "other"), Reply::Int(0));
        assert_eq!(
            client.call(&once(&[])),
            Reply::Array(vec![text("DONE"), Reply::Nil, Reply::Int(2)])
        );
        call!(client, "DEL", "o");
        client.call(&once(&["TOKEN", "one"]));
        assert_eq!(
            call!(client, "DONCE.DONE", "o", "one", "RESULT", "42"),
            Reply::Int(1)
        );
        assert_eq!(
            client.call(&once(&[])),
            Reply::Array(vec![text("DONE"), text("42"), Reply::Int(1)])
        );
        assert_eq!(call!(client, "DSYNC.CONTENDED"), Reply::Array(Vec::new()));
        assert_eq!(
            call!(client, "DSYNC.HOLDS", 0),
            Reply::Array(vec![text("0"), Reply::Array(Vec::new())])
        );
    }
}
