//! Work-once in a fleet: workers are processes and are killed, the server is killed, the work fails.
//!
//! Whatever process is killed, the work is done once within the attempts that its clients allow, and every client that
//! asks gets the result.

use crate::support::steps::*;
use crate::support::*;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Environment variables of a worker: the port of its server, and the options of its BEGIN.
const WORKER_PORT: &str = "DSYNC_TEST_WORKER_PORT";
const WORKER_OPTIONS: &str = "DSYNC_TEST_WORKER_OPTIONS";

/// The first attempt that finishes its work; workers with an earlier attempt run until they are killed.
const LUCKY: i64 = 3;

/// A worker process. Dropping it kills the process.
struct Worker(Child);

impl Worker {
    fn start(server: &Server, options: &str) -> Worker {
        let program = std::env::current_exe().expect("this program has a path");
        let worker = name_of_test(module_path!(), "worker_process");
        let child = Command::new(program)
            .args(["--exact", &worker])
            .env(WORKER_PORT, server.port().to_string())
            .env(WORKER_OPTIONS, options)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Worker(child.expect("a worker starts"))
    }

    fn id(&self) -> u32 {
        self.0.id()
    }

    /// SIGKILL; returns when the process is gone.
    fn kill(&mut self) {
        self.0.kill().expect("a child of ours may be killed");
        self.0.wait().expect("a killed child can be waited for");
    }

    fn is_through(&mut self) -> bool {
        match self.0.try_wait().expect("a child can be watched") {
            Some(status) => {
                assert!(status.success(), "a worker ended with {status}");
                true
            }
            None => false,
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Nothing here may panic: the test may be panicking already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The program of a [`Worker`] process. In a normal run of all tests it returns at once.
#[test]
fn worker_process() {
    let (Ok(port), Ok(options)) = (std::env::var(WORKER_PORT), std::env::var(WORKER_OPTIONS))
    else {
        return;
    };
    let port = port.parse().expect("a port");
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut client = Client::connect(address).expect("the test's server is there");
    let me = std::process::id();
    client.begin(format!(
        "DONCE.BEGIN job TOKEN worker-{me} OWNER {me} BLOCK 0 {options}"
    ));
    let begun = client.recv(Duration::from_secs(60)).expect("an answer");
    let words = begun.as_array();
    if words[0] == *"RUN" {
        let attempt = words[3].as_int();
        client.ask(format!("RPUSH started {me}:{attempt}"));
        if attempt < LUCKY {
            // A healthy worker that renews: only the kill ends this loop.
            loop {
                client.expect_silence(Duration::from_millis(50));
                assert_eq!(client.ask(format!("DONCE.RENEW job worker-{me}")), 1);
            }
        }
        client.ask("INCR charges");
        let done = client.ask(format!("DONCE.DONE job worker-{me} RESULT {me}"));
        assert_eq!(done, 1);
        client.ask(format!("RPUSH results {me}"));
    } else {
        assert_eq!(words[0], *"DONE");
        client.ask(format!("RPUSH results {}", words[1].as_str()));
    }
}

/// Kills the first two workers that get to run; the third does the work.
fn kill_two_of_a_fleet(options: &str) {
    const FLEET: usize = 5;
    let server = Server::start();
    let mut client = server.connect();
    let mut fleet: Vec<_> = (0..FLEET)
        .map(|_| Worker::start(&server, options))
        .collect();
    eventually("a fleet in line", SOON, || {
        count(&mut client, "DONCE.INFO", "job", "waiters") == FLEET as i64 - 1
    });
    for attempt in 1..=LUCKY {
        eventually(&format!("attempt {attempt}"), SOON, || {
            client.ask("LLEN started").as_int() >= attempt
        });
        let started = client.ask(format!("LINDEX started {}", attempt - 1));
        let (id, number) = started.as_str().split_once(':').expect("id:attempt");
        assert_eq!(number, attempt.to_string());
        if attempt < LUCKY {
            let worker = fleet
                .iter_mut()
                .find(|worker| worker.id().to_string() == id);
            worker.expect("one of the fleet").kill();
            fleet.retain(|worker| worker.id().to_string() != id);
        }
    }
    for worker in &mut fleet {
        eventually("a worker that is through", SOON, || worker.is_through());
    }
    assert_eq!(client.ask("GET charges"), "1", "exactly once");
    assert_eq!(client.ask("LLEN started"), LUCKY);
    let winner = client.ask("LINDEX started -1");
    let winner = winner.as_str().split(':').next().expect("an id").to_owned();
    let results = client.ask("LRANGE results 0 -1");
    assert_eq!(results.as_array().len(), FLEET - 2);
    for result in results.as_array() {
        assert_eq!(*result, *winner, "all of {results:?}");
    }
    let late = client.ask("DONCE.BEGIN job MAX 1");
    let words = late.as_array();
    assert_eq!((words[0].as_str(), words[1].as_str()), ("DONE", &*winner));
    assert_eq!(words[2], LUCKY);
    assert_eq!(server.info_number("dsync", "dsync_waiters"), 0);
    assert_eq!(server.info_number("dsync", "dsync_holds"), 0);
}

#[test]
fn ephemeral_work_is_done_once_after_two_workers_are_killed() {
    // The work passes on when the connection closes; the long lease plays no part.
    kill_two_of_a_fleet("EPHEMERAL EX 600");
}

#[test]
fn leased_work_is_done_once_after_two_workers_are_killed() {
    kill_two_of_a_fleet("PX 600");
}

/// Sends the same request on new connections until one of them gets a reply other than an error.
#[track_caller]
fn ask_until_answered(port: u16, line: &str) -> (Client, Reply) {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let words: Vec<_> = line.split(' ').collect();
    let mut answered = None;
    eventually(
        &format!("an answer to {line}"),
        Duration::from_secs(30),
        || {
            let Ok(mut client) = Client::connect(address) else {
                return false;
            };
            answered = client
                .try_call(&words)
                // A server that still loads its data answers LOADING.
                .filter(|reply| !reply.is_error())
                .map(|reply| (client, reply));
            answered.is_some()
        },
    );
    answered.expect("just awaited")
}

#[test]
fn work_started_by_five_instances_is_done_once_across_restarts() {
    let mut server = Server::builder()
        .config("appendonly", "yes")
        .config("appendfsync", "always")
        .start();
    let port = server.port();
    let (running, has_begun) = mpsc::channel();
    let (results, outcome) = mpsc::channel();
    // The instance that runs waits for a message on `resume` before it charges.
    let instances: Vec<_> = (0..5)
        .map(|n| {
            let (running, results) = (running.clone(), results.clone());
            thread::spawn(move || {
                let line = format!("DONCE.BEGIN bill:2026-11 TOKEN run-{n} EX 60 BLOCK 0");
                let (client, begun) = ask_until_answered(port, &line);
                if begun.as_array()[0] != *"RUN" {
                    return results.send((n, begun)).expect("the test listens");
                }
                drop(client);
                let (resume, resumed) = mpsc::channel::<()>();
                running
                    .send((begun.clone(), resume))
                    .expect("the test listens");
                resumed
                    .recv_timeout(Duration::from_secs(30))
                    .expect("the message to resume");
                // The server was killed and the connection with it. BEGIN again tells whether this token still runs.
                let (mut client, again) = ask_until_answered(port, &line);
                assert_eq!(again, begun, "the same run: token, fence and attempt");
                client.ask("INCR charges");
                let done = format!("DONCE.DONE bill:2026-11 run-{n} RESULT invoice-{n}");
                assert_eq!(client.ask(&done), 1);
                // DONE again answers 1 again, for a client whose first reply was lost.
                assert_eq!(client.ask(&done), 1);
                let (_, done) = ask_until_answered(port, &line);
                results.send((n, done)).expect("the test listens");
            })
        })
        .collect();
    drop((running, results));
    let (begun, resume) = has_begun.recv_timeout(SOON).expect("one begins");
    server.wait_for_blocked(4);
    server.kill9();
    server.start_again();
    // The other four wait again; none of them runs.
    server.wait_for_blocked(4);
    resume.send(()).expect("it waits for the word");
    let answers: Vec<_> = (0..5)
        .map(|_| outcome.recv_timeout(SOON).expect("every instance learns"))
        .collect();
    for instance in instances {
        instance.join().expect("no instance fails");
    }
    assert!(has_begun.try_recv().is_err(), "only one ran");
    let winner = begun.as_array()[1].as_str().replace("run-", "invoice-");
    for (n, reply) in answers {
        let words = reply.as_array();
        assert_eq!(
            (words[0].as_str(), words[1].as_str()),
            ("DONE", &*winner),
            "{n}"
        );
        assert_eq!(words[2], 1, "one attempt");
    }
    // Late requests get the same result after another crash and after a clean restart.
    for clean in [false, true] {
        if clean {
            server.restart();
        } else {
            server.kill9();
            server.start_again();
        }
        let mut client = server.connect();
        for n in 0..5 {
            let late = client.ask(format!("DONCE.BEGIN bill:2026-11 TOKEN late-{n} BLOCK 0"));
            assert_eq!(late.as_array()[1], *winner);
        }
        assert_eq!(client.ask("GET charges"), "1");
    }
}

#[test]
fn work_that_keeps_failing_is_given_up_until_max_is_raised() {
    const INSTANCES: usize = 6;
    let server = Server::start();
    let mut client = server.connect();
    // Each instance fails its runs and begins again until it is answered FAILED.
    let begin_until_failed = |n: usize| {
        let mut client = server.connect();
        let mut runs = 0;
        loop {
            let begun = client.ask("DONCE.BEGIN job MAX 3 BLOCK 0");
            let words = begun.as_array();
            if words[0] != *"RUN" {
                return (runs, begun);
            }
            runs += 1;
            let (token, attempt) = (words[1].as_str(), words[3].as_int());
            let reason = format!("declined:{n}:{attempt}");
            assert_eq!(
                client.ask(format!("DONCE.FAIL job {token} REASON {reason}")),
                1
            );
        }
    };
    let answers: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..INSTANCES)
            .map(|n| scope.spawn(move || begin_until_failed(n)))
            .collect();
        let answers = threads
            .into_iter()
            .map(|thread| thread.join().expect("an answer"));
        answers.collect()
    });
    assert_eq!(
        answers.iter().map(|(runs, _)| runs).sum::<i32>(),
        3,
        "{answers:?}"
    );
    for (_, reply) in &answers {
        let words = reply.as_array();
        assert_eq!(
            (&words[0], &words[2]),
            (&Reply::Bulk(b"FAILED".to_vec()), &Reply::Int(3))
        );
        assert!(words[1].as_str().starts_with("declined:"), "{reply:?}");
        assert!(
            words[1].as_str().ends_with(":3"),
            "the last reason: {reply:?}"
        );
    }
    // An operator allows one more attempt.
    let begun = client.ask("DONCE.BEGIN job MAX 4 TOKEN operator");
    assert_eq!(begun.as_array()[3], 4);
    let mut waiter = server.waiting("DONCE.BEGIN job MAX 3 BLOCK 0");
    assert_eq!(client.ask("DONCE.DONE job operator RESULT paid"), 1);
    for reply in [waiter.reply(), client.ask("DONCE.BEGIN job MAX 1")] {
        let words = reply.as_array();
        assert_eq!((words[0].as_str(), words[1].as_str()), ("DONE", "paid"));
        assert_eq!(words[2], 4);
    }
}
