//! The ways to a server: TLS, users, unix sockets, sentinels and clusters.

use std::fs;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

use crate::support::{Folder, Server, ToolFor, dsync, until, wait_for, watch};

#[test]
fn user_and_password_come_from_url_options_and_environment() {
    let server = Server::start();
    server.ask("ACL SETUSER worker on >secret ~jobs:* +@all");
    server.ask("CONFIG SET requirepass other");
    let run = |url: &str, options: &[&str]| {
        let mut arguments = options.to_vec();
        arguments.extend(["run", "--lock", "jobs:1", "--", "true"]);
        dsync(url, &arguments)
    };
    let plain = server.url();
    let (status, _, stderr) = run(&plain, &[]).output();
    assert_eq!(status, 76);
    assert!(
        stderr.contains("NOAUTH") && stderr.contains("REDISCLI_AUTH"),
        "{stderr}"
    );
    let with_user = format!("redis://worker:secret@127.0.0.1:{}", server.port());
    assert_eq!(run(&with_user, &[]).output().0, 0);
    assert_eq!(
        run(&plain, &["--user", "worker", "--pass", "secret"])
            .output()
            .0,
        0
    );
    assert_eq!(
        run(&plain, &["--user", "worker"])
            .with("REDISCLI_AUTH", "secret")
            .output()
            .0,
        0
    );
    assert_eq!(
        run(&plain, &[]).with("REDISCLI_AUTH", "other").output().0,
        0
    );
    assert_eq!(
        run(&plain, &["--user", "worker", "--pass", "wrong"])
            .output()
            .0,
        76
    );
    // The URL of the option wins over that of the environment.
    assert_eq!(
        run("redis://127.0.0.1:1", &["-u", &with_user]).output().0,
        0
    );
    // It stands on either side of the subcommand.
    let behind = ["ls", "-u", &with_user, "-n", "3"];
    assert_eq!(dsync("redis://127.0.0.1:1", &behind).output().0, 0);
    let denied = dsync(&with_user, &["run", "--lock", "other", "--", "true"]).output();
    assert_eq!(denied.0, 76);
    assert!(denied.2.contains("NOPERM"), "{}", denied.2);
}

#[test]
fn each_subcommand_needs_the_rights_of_its_job_only() {
    let server = Server::start();
    let users = [
        "worker on nopass resetchannels ~jobs:* -@all +@connection -@dangerous \
         +dlock.acquire +dlock.release +dlock.renew +dlock.check +dlock.info",
        "observer on nopass resetchannels %R~* -@all +@connection -@dangerous \
         +dsync.contended +dsync.holds +dlock.info +dlock.check +info",
        "operator on nopass resetchannels ~* -@all +@connection -@dangerous +dsync.contended +dsync.holds +dsync.log \
         +dlock.info +dlock.revoke +dsem.revoke +dwg.revoke +donce.revoke",
    ];
    for user in users {
        server.ask(format!("ACL SETUSER {user}"));
    }
    let (_, fence) = server
        .ask("DLOCK.ACQUIRE jobs:1 PX 60000 TOKEN t OWNER web-1")
        .grant();
    server.ask("DLOCK.ACQUIRE jobs:1 PX 60000 TOKEN u QUEUE 60000");
    let as_user = |user: &str, arguments: &[&str]| {
        let url = format!("redis://{user}:any@127.0.0.1:{}", server.port());
        dsync(&url, arguments).output()
    };
    let (status, _, stderr) = as_user(
        "worker",
        &["run", "--lock", "jobs:1", "--try", "--", "true"],
    );
    assert_eq!(status, 75, "{stderr}");
    assert!(stderr.contains("web-1"), "{stderr}");
    assert_eq!(
        as_user("worker", &["run", "--lock", "jobs:2", "--", "true"]).0,
        0
    );
    let (status, stdout, stderr) = as_user("observer", &["ls"]);
    assert!(status == 0 && stdout.contains("web-1"), "{stderr}");
    let (status, stdout, stderr) = as_user("observer", &["top", "--once", "--interval", "100ms"]);
    assert!(status == 0 && stdout.contains("web-1"), "{stderr}");
    assert_eq!(
        as_user("observer", &["revoke", "jobs:1", &fence.to_string()]).0,
        76
    );
    let (status, _, stderr) = as_user("operator", &["revoke", "jobs:1", &fence.to_string()]);
    assert_eq!(status, 0, "{stderr}");
    assert!(
        as_user("operator", &["log"])
            .1
            .contains(" revoke key=jobs:1")
    );
}

#[test]
fn unix_sockets_and_databases_are_reached() {
    let server = Server::builder().config("unixsocket", "socket").start();
    let url = format!("unix://{}?db=3", server.dir().join("socket").display());
    let tool = env!("CARGO_BIN_EXE_dsync");
    let stdout = dsync(&url, &["run", "--lock", "k", "--", tool, "ls", "--json"]).stdout();
    let holds: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(holds[0]["db"], 3);
    assert_eq!(holds[0]["key"], "k");
}

#[test]
fn tls_checks_the_server_and_shows_a_certificate() {
    let folder = Folder::new();
    let mut authority = CertificateParams::default();
    authority
        .distinguished_name
        .push(DnType::CommonName, "authority");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    fs::write(folder.path("ca"), authority.pem()).unwrap();
    for (name, host) in [("server", "localhost"), ("client", "worker")] {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new([host.to_owned()])
            .unwrap()
            .signed_by(&key, &authority)
            .unwrap();
        fs::write(folder.path(&format!("{name}-cert")), certificate.pem()).unwrap();
        fs::write(folder.path(&format!("{name}-key")), key.serialize_pem()).unwrap();
    }
    let port = dsync_testkit::next_port();
    let server = Server::builder()
        .config("tls-port", port)
        .config("tls-cert-file", folder.text("server-cert"))
        .config("tls-key-file", folder.text("server-key"))
        .config("tls-ca-cert-file", folder.text("ca"))
        .try_start();
    if server.is_err() {
        eprintln!("left out: this server was built without TLS");
        return;
    }
    let url = format!("rediss://localhost:{port}");
    let (ca, cert, key) = (
        folder.text("ca"),
        folder.text("client-cert"),
        folder.text("client-key"),
    );
    let trusted = ["--cacert", &ca, "--cert", &cert, "--key", &key];
    let run = |url: &str, options: &[&str]| {
        let mut arguments = options.to_vec();
        arguments.extend(["run", "--lock", "k", "--try", "--", "true"]);
        dsync(url, &arguments).output()
    };
    let (status, _, stderr) = run(&url, &trusted);
    assert_eq!(status, 0, "{stderr}");
    let mut list = trusted.to_vec();
    list.push("ls");
    assert_eq!(dsync(&url, &list).output().0, 0);
    let held = ["run", "--lock", "k", "--", "sh", "-c"];
    let ask = "printf 'dsync %s info ' \"$0\" | \"$1\" complete zsh";
    let (tool, line) = (env!("CARGO_BIN_EXE_dsync"), trusted.join(" "));
    let all = [&trusted[..], &held, &[ask, &line, tool]].concat();
    assert_eq!(dsync(&url, &all).stdout(), "k\n", "TAB asks with TLS, too");
    // --cacert asks for TLS also with a redis:// URL.
    assert_eq!(run(&format!("redis://localhost:{port}"), &trusted).0, 0);
    assert_eq!(
        run(&url, &["--insecure", "--cert", &cert, "--key", &key]).0,
        0
    );
    let plain = format!("redis://localhost:{port}");
    let tls_to_plain = format!("rediss://127.0.0.1:{}", server.as_ref().unwrap().port());
    let cases: [(&str, &str, &[&str], &[&str]); 5] = [
        (
            "an unknown authority",
            &url,
            &["--cert", &cert, "--key", &key],
            &["authority", "--cacert"],
        ),
        (
            "no certificate of the client",
            &url,
            &["--cacert", &ca],
            &["this client's certificate", "--cert"],
        ),
        (
            "another name than the certificate's",
            &format!("rediss://127.0.0.1:{port}"),
            &trusted,
            &["for another host"],
        ),
        (
            "a port with TLS",
            &plain,
            &[],
            &["wants TLS", "rediss://", "--tls", "--cacert"],
        ),
        (
            "a port without TLS",
            &tls_to_plain,
            &["--timeout", "1s"],
            &["without TLS", "redis://", "--tls"],
        ),
    ];
    for (what, url, options, words) in cases {
        let mut list = options.to_vec();
        list.push("ls");
        for (status, _, stderr) in [run(url, options), dsync(url, &list).output()] {
            assert_eq!(status, 69, "{what}: {stderr}");
            for word in words {
                assert!(stderr.contains(word), "{what}, {word}: {stderr}");
            }
        }
    }
    let unchecked = format!("{url}/#insecure");
    let (status, _, stderr) = run(&unchecked, &["--cert", &cert, "--key", &key]);
    assert_eq!(status, 64, "{stderr}");
    assert!(stderr.contains("--insecure"), "{stderr}");
    assert_eq!(run(&url, &["--cacert", "/nonexistent"]).0, 71);
}

#[test]
fn host_and_port_are_given_as_to_redis_cli() {
    let server = Server::start();
    let port = server.port().to_string();
    let here = format!("127.0.0.1:{port}");
    for options in [
        &["-h", "127.0.0.1", "-p", &port][..],
        &["--host=localhost", "--port", &port],
        &["-h", "127.0.0.1", "-p", &port, "-n", "3"],
        &["-p", &port],
        &["-u", &here],
    ] {
        let all = [options, &["run", "--lock", "k", "--", "echo", "ran"]].concat();
        let ran = dsync("redis://127.0.0.1:1", &all).stdout();
        assert_eq!(ran, "ran\n", "{options:?}");
    }
    for other in [
        &["--url", "redis://h"][..],
        &["--profile", "p"],
        &["--sentinel", "h", "--master", "m"],
    ] {
        let all = [&["-p", &port], other, &["ls"]].concat();
        let (status, _, stderr) = dsync("redis://127.0.0.1:1", &all).output();
        assert!(status == 64 && stderr.contains("-h and -p"), "{stderr}");
    }
}

#[test]
fn run_survives_a_failover_by_sentinel() {
    let (mut primary, folder) = (Server::start(), Folder::new());
    let replica = Server::builder().replica_of(&primary).start();
    let sentinel = watch(&primary, 1);
    let address = format!("127.0.0.1:{}", sentinel.nth(0).port());
    let tool = |arguments: &[&str]| {
        let mut all = vec!["--sentinel", &address, "--master", "locks"];
        all.extend(arguments);
        dsync("redis://127.0.0.1:1", &all)
    };
    let script = wait_for(&folder.path("go"));
    let mut run = tool(&[
        "run", "--lock", "k", "--lease", "9s", "--", "sh", "-c", &script,
    ])
    .start();
    until("the replica knows the hold", || {
        replica.info_number("dsync", "dsync_holds") == 1
    });
    primary.kill9();
    until("the replica is promoted", || replica.is_primary());
    until("the hold is renewed there", || {
        let rows = tool(&["ls", "--json"]).output().1;
        let holds: serde_json::Value = serde_json::from_str(&rows).unwrap_or_default();
        holds[0]["lease_left_ms"]
            .as_u64()
            .is_some_and(|left| left > 7500)
    });
    folder.touch("go");
    let (status, stderr) = run.end();
    assert_eq!(status, 0, "{stderr}");
    assert_eq!(replica.info_number("dsync", "dsync_holds"), 0);
}

#[test]
fn all_primaries_of_a_cluster_are_asked() {
    let nodes = [
        Server::builder().config("cluster-enabled", "yes").start(),
        Server::builder().config("cluster-enabled", "yes").start(),
    ];
    nodes[0].ask("CLUSTER ADDSLOTSRANGE 0 8191");
    nodes[1].ask("CLUSTER ADDSLOTSRANGE 8192 16383");
    nodes[1].ask("CONFIG SET cluster-node-timeout 5000");
    nodes[0].ask(format!("CLUSTER MEET 127.0.0.1 {}", nodes[1].port()));
    for node in &nodes {
        until("the cluster is whole", || {
            let info = node.ask("CLUSTER INFO").as_str().to_owned();
            info.contains("cluster_state:ok") && info.contains("cluster_slots_ok:16384")
        });
    }
    // a is in slot 15495, b in slot 3300.
    let folder = Folder::new();
    let tool = |arguments: &[&str]| {
        let mut all = vec!["--cluster"];
        all.extend(arguments);
        nodes[0].dsync(&all)
    };
    let script = wait_for(&folder.path("go"));
    let hold = |key: &str| {
        tool(&[
            "run", "--lock", key, "--owner", key, "--", "sh", "-c", &script,
        ])
        .start()
    };
    let mut runs = [hold("a"), hold("b")];
    until("both hold", || {
        nodes
            .iter()
            .all(|node| node.info_number("dsync", "dsync_holds") == 1)
    });

    let holds: serde_json::Value = serde_json::from_str(&tool(&["ls", "--json"]).stdout()).unwrap();
    let keys: Vec<&str> = holds
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|hold| hold["key"].as_str())
        .collect();
    assert_eq!(keys.len(), 2, "{holds}");
    let report: serde_json::Value =
        serde_json::from_str(&tool(&["top", "--once", "--json", "--interval", "100ms"]).stdout())
            .unwrap();
    assert_eq!(report["servers"].as_array().unwrap().len(), 2);
    assert_eq!(report["holds"]["lock"], 2);

    let of_a = holds
        .as_array()
        .unwrap()
        .iter()
        .find(|hold| hold["key"] == "a")
        .unwrap();
    assert_eq!(
        tool(&["revoke", "a", &of_a["fence"].to_string()])
            .output()
            .0,
        0
    );
    assert_eq!(tool(&["revoke", "--owner", "b", "--yes"]).output().0, 0);
    assert!(
        tool(&["log"])
            .stdout()
            .lines()
            .filter(|line| line.contains(" revoke "))
            .count()
            == 2
    );
    for run in &mut runs {
        // The end of the hold is noticed at the next renewal; nobody needs to wait for it here.
        run.signal(Signal::SIGKILL);
        run.status();
    }
    // A node that is dead and one that is stopped cost nothing while another one answers.
    let stopped = Server::builder().without_module().start();
    stopped.stop();
    let several = |nodes: &[&str], arguments: &[&str]| {
        let mut all = vec!["--timeout", "60s", "--cluster"];
        all.extend(nodes.iter().flat_map(|node| ["--url", node]));
        all.extend(arguments);
        dsync("redis://127.0.0.1:2", &all).output()
    };
    let (dead, stopped, living) = ("redis://127.0.0.1:1", stopped.url(), nodes[1].url());
    let start = Instant::now();
    let (status, _, stderr) = several(&[dead, &stopped, &living], &["ls"]);
    assert_eq!(status, 0, "{stderr}");
    let (status, _, stderr) = several(&[dead, &stopped, &living], &["revoke", "a", "1"]);
    assert_eq!(status, 1, "{stderr}");
    let run = ["run", "--lock", "b", "--", "true"];
    let (status, _, stderr) = several(&[dead, &living], &run);
    assert_eq!(status, 0, "{stderr}");
    assert!(start.elapsed() < Duration::from_secs(30), "{start:?}");
    let mut of_environment = nodes[0].dsync(&["-c", "ls"]);
    of_environment = of_environment.with("REDIS_URL", format!("{dead} {living}"));
    assert_eq!(of_environment.output().0, 0);
    let (status, _, stderr) = several(&[dead, "redis://127.0.0.1:2"], &["ls"]);
    assert_eq!(status, 69, "{stderr}");
    assert!(
        stderr.contains("127.0.0.1:1:") && stderr.contains("127.0.0.1:2:"),
        "{stderr}"
    );
    // A single node names the other one.
    let (status, _, stderr) = nodes[0]
        .dsync(&["run", "--lock", "a", "--try", "--", "true"])
        .output();
    assert_eq!(status, 76);
    assert!(stderr.contains("--cluster"), "{stderr}");
    // While a slot moves, what its node does not have is at the next one.
    for (at, to, how) in [(0, 1, "IMPORTING"), (1, 0, "MIGRATING")] {
        let other = nodes[to].ask("CLUSTER MYID").as_str().to_owned();
        nodes[at].ask(format!("CLUSTER SETSLOT 15495 {how} {other}"));
    }
    let pause = ["pause", "a", "1m", "--type", "lock"];
    assert!(tool(&pause).stdout().starts_with("paused lock 'a'"));
    assert!(
        tool(&["resume", "a"])
            .stdout()
            .starts_with("lock 'a' goes on")
    );
}
