//! Tests of the harness's hosts and sentinels, against servers without the module.

use crate::support::steps::SOON;
use crate::support::*;
use dsync_testkit::process::lives;

fn plain() -> Builder {
    Server::builder().without_module()
}

#[test]
fn hosts_reach_each_other_except_during_a_cut() {
    let Some(network) = Network::new() else {
        return;
    };
    let (here, there) = (network.host(), network.host());
    assert_ne!(here.address(), there.address());
    let primary = plain().on(&here).start();
    let replica = plain().on(&there).replica_of(&primary).start();
    let mut client = primary.connect();
    for round in 0..2 {
        assert_eq!(client.ask(format!("SET key {round}")), "OK");
        assert_eq!(client.ask("WAIT 1 10000"), 1);

        there.cut_off();
        assert_eq!(call!(client, "SET", "key", "lost on the way"), "OK");
        assert_eq!(client.ask("WAIT 1 300"), 0);
        // Both servers still answer the test, which connects by their Unix sockets.
        assert_eq!(replica.connect().ask("GET key"), &*round.to_string());

        there.join();
        assert_eq!(client.ask("WAIT 1 10000"), 1);
        assert_eq!(replica.connect().ask("GET key"), "lost on the way");
    }
}

#[test]
fn hosts_of_two_networks_do_not_reach_each_other() {
    let (Some(one), Some(other)) = (Network::new(), Network::new()) else {
        return;
    };
    let (here, there) = (one.host(), other.host());
    assert_eq!(here.address(), there.address(), "and may be called alike");
    let ours = plain().on(&here).start();
    let theirs = plain().on(&there).start();
    ours.connect().ask("SET key ours");
    assert!(theirs.connect().ask("GET key").is_nil());
}

#[test]
fn server_on_a_host_is_killed_and_started_again_there() {
    let Some(network) = Network::new() else {
        return;
    };
    let host = network.host();
    let mut server = plain().on(&host).start();
    let (pid, port) = (server.pid(), server.port());
    let client = server.connect();
    server.kill9();
    assert!(server.try_connect().is_err());
    drop(client);
    server.start_again();
    assert_ne!(server.pid(), pid);
    assert_eq!((server.ip(), server.port()), (host.address(), port));
}

#[test]
fn sentinels_name_the_primary_and_promote_a_replica() {
    let mut primary = plain().start();
    let replica = plain().replica_of(&primary).start();
    let sentinels = Sentinels::watch(&primary, 1);
    assert_eq!(sentinels.address_by(0), (primary.ip(), primary.port()));
    primary.kill9();
    let new = sentinels.wait_for_failover(2, &primary, &[&primary, &replica]);
    assert_eq!(new.port(), replica.port());
}

/// The name of the test that the next one runs in a process of its own.
const VICTIM: &str = "victim_process";

/// In a normal run it returns at once. As a victim it sets up a host and waits to be killed.
#[test]
fn victim_process() {
    let Some(path) = victims_report() else {
        return;
    };
    let network = Network::new().expect("the next test has a network itself");
    let host = network.host();
    let server = plain().on(&host).start();
    let dir = server.dir().display().to_string();
    let processes = [network.keeper(), host.keeper(), server.pid()].map(|pid| pid.to_string());
    let words = [&[dir], &processes[..]].concat();
    report_and_wait(path, &words, server.connect());
}

#[test]
fn host_of_a_killed_test_process_is_gone_too() {
    let Some(_network) = Network::new() else {
        return;
    };
    let mut victim = Victim::run(&name_of_test(module_path!(), VICTIM));
    let facts = victim.report();
    let (dir, processes) = facts.split_first().expect("a directory and processes");
    assert_eq!(processes.len(), 3, "{facts:?}");
    assert!(processes.iter().all(|pid| lives(pid)), "{facts:?}");

    victim.kill();
    eventually("the end of the victim's host", SOON, || {
        !processes.iter().any(|pid| lives(pid))
    });
    std::fs::remove_dir_all(dir).expect("the victim's directory is still there");
}
