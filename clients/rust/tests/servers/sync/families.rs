//! What locks, semaphores, groups and work-once are for.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use dsync_client::{Begun, Client, Error, Outcome, Run};

use crate::support::{SECOND, Server, assert_done};

#[test]
fn refused_try_says_who_holds() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let lock = client.lock("nightly");
    let hold = lock.clone().owner("web-1").acquire().unwrap();
    let error = lock.try_acquire().unwrap_err();
    let Error::NotAcquired { key, holders, .. } = &error else {
        panic!("{error:?}");
    };
    assert_eq!(key, "nightly");
    assert_eq!(holders.len(), 1);
    assert_eq!(holders[0].owner.as_deref(), Some("web-1"));
    assert_eq!(holders[0].fence, hold.fence());
    assert!(error.to_string().contains("held by web-1"), "{error}");
    let fence = hold.fence();
    hold.release().unwrap();
    assert!(lock.try_acquire().unwrap().fence() > fence);
}

#[test]
fn shared_holds_are_held_together() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let readers = client.lock("table").shared();
    let first = readers.try_acquire().unwrap();
    let second = readers.try_acquire().unwrap();
    assert!(client.lock("table").try_acquire().is_err());
    drop((first, second));
    client.lock("table").try_acquire().unwrap();
}

#[test]
fn semaphore_gives_out_as_many_permits_as_its_limit() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let api = client.semaphore("api").limit(3);
    let one = api.try_acquire().unwrap();
    let _two = api.clone().permits(2).try_acquire().unwrap();
    assert!(
        matches!(api.try_acquire(), Err(Error::NotAcquired { holders, .. }) if holders.len() == 2)
    );
    one.release().unwrap();
    api.try_acquire().unwrap();
    let too_many = api.clone().permits(4).try_acquire().unwrap_err();
    assert!(matches!(too_many, Error::Redis(error) if error.code() == Some("TOOMANY")));
}

#[test]
fn group_is_finished_when_as_many_as_expected_are_done() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let group = client.group("batch").limit(1);
    assert_eq!(group.expect(2).unwrap(), 2);
    let first = group.add().unwrap();
    assert!(matches!(group.try_add(), Err(Error::NotAcquired { .. })));
    assert_eq!(group.wait_for(Duration::from_millis(10)).unwrap(), None);
    let waiting = {
        let group = group.clone();
        thread::spawn(move || group.wait())
    };
    server.wait_for_waiters(1);
    first.done().unwrap();
    // Dropped: not counted, so a job is still owed.
    drop(group.add().unwrap());
    group.add().unwrap().done().unwrap();
    let tally = waiting.join().unwrap().unwrap();
    assert_eq!((tally.done, tally.lapsed), (2, 0));
}

#[test]
fn wait_for_a_group_that_is_removed_is_an_error() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let group = client.group("batch");
    let member = group.add().unwrap();
    let waiting = {
        let group = group.clone();
        thread::spawn(move || group.wait())
    };
    server.wait_for_waiters(1);
    server.ask("DEL batch");
    let error = waiting.join().unwrap().unwrap_err();
    assert!(matches!(error, Error::Redis(error) if error.code() == Some("UNBLOCKED")));
    assert!(matches!(member.done(), Err(Error::HoldLost { .. })));
}

fn begun(begun: Begun) -> Run {
    match begun {
        Begun::Run(run) => run,
        Begun::Done { .. } => panic!("the work is done already"),
    }
}

#[test]
fn work_is_done_once_and_everybody_gets_the_result() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let once = client.once("invoice").keep(60 * SECOND);
    assert_eq!(once.result().unwrap(), Outcome::NotYet);
    let run = begun(once.begin().unwrap());
    assert_eq!(run.attempt(), 1);
    assert!(matches!(once.try_begin(), Err(Error::NotAcquired { .. })));
    let waiting = {
        let once = once.clone();
        thread::spawn(move || once.call_bytes(|_| -> Result<_, Error> { panic!("a second run") }))
    };
    server.wait_for_waiters(1);
    run.done(Some(b"in-7")).unwrap();
    assert_eq!(waiting.join().unwrap().unwrap(), b"in-7");
    assert_done(&once.result().unwrap(), b"in-7");
    let kept = server.ask("PTTL invoice").as_int();
    assert!((-1..=60_000).contains(&kept), "{kept}");
}

#[test]
fn work_that_fails_too_often_is_given_up_with_its_reason() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let once = client.once("invoice").max_attempts(2);
    let error = once.call(|run| {
        assert_eq!(run.attempt(), 1);
        Err::<String, Box<dyn std::error::Error>>("no disk space".into())
    });
    assert_eq!(error.unwrap_err().to_string(), "no disk space");
    // Handed back: not counted.
    assert_eq!(begun(once.begin().unwrap()).attempt(), 2);
    let run = begun(once.begin().unwrap());
    assert_eq!(run.attempt(), 2);
    run.fail(&"no paper ".repeat(1000)).unwrap();
    let Err(Error::WorkFailed {
        reason, attempts, ..
    }) = once.begin()
    else {
        panic!("the work is not given up");
    };
    assert_eq!(attempts, 2);
    assert!(reason.starts_with("no paper ") && reason.len() <= 1_000);
}

#[test]
fn call_whose_work_fails_goes_on_until_its_attempts_are_over() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let once = |key: &str| client.once(key).max_attempts(3).until_done();
    let done = once("a").call(|run| match run.attempt() {
        3 => Ok::<_, Box<dyn std::error::Error>>(7),
        _ => Err("no disk".into()),
    });
    assert_eq!(done.unwrap(), 7);
    let given_up = once("b").call(|run| -> Result<u8, Box<dyn std::error::Error>> {
        Err(format!("no disk {}", run.attempt()).into())
    });
    let given_up = given_up.unwrap_err().downcast::<Error>().unwrap();
    assert!(
        matches!(*given_up, Error::WorkFailed { attempts: 3, .. }),
        "{given_up}"
    );
    let cause = std::error::Error::source(&*given_up).unwrap();
    assert_eq!(cause.to_string(), "no disk 3");
}

#[test]
fn result_is_stored_as_json_and_read_by_its_type() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let made = client
        .once("a")
        .call(|_| Ok::<_, Error>(vec![Some("hé".to_owned()), None]));
    assert_eq!(made.unwrap(), [Some("hé".to_owned()), None]);
    assert_done(
        &client.once("a").result().unwrap(),
        "[\"hé\",null]".as_bytes(),
    );
    let read: Vec<Option<String>> = client.once("a").call(|_| Err(unexpected())).unwrap();
    assert_eq!(read.len(), 2);
    // Another program has stored a text that is no JSON.
    begun(client.once("b").begin().unwrap())
        .done(Some(b"ch_7"))
        .unwrap();
    let text: String = client.once("b").call(|_| Err(unexpected())).unwrap();
    assert_eq!(text, "ch_7");
    for key in ["a", "b"] {
        let read = client.once(key).call(|_| Err::<u64, _>(unexpected()));
        let error = read.unwrap_err();
        let Error::UnusableResult {
            text: Some(text), ..
        } = &error
        else {
            panic!("{error}");
        };
        assert_eq!(text, if key == "a" { "[\"hé\",null]" } else { "ch_7" });
        assert!(error.to_string().contains("cannot be read"), "{error}");
    }
    begun(client.once("c").begin().unwrap()).done(None).unwrap();
    assert_eq!(
        client
            .once("c")
            .call(|_| Err::<Option<u8>, _>(unexpected()))
            .unwrap(),
        None
    );
    assert_eq!(
        client.once("c").call_bytes(|_| Err(unexpected())).unwrap(),
        b""
    );
}

fn unexpected() -> Error {
    Error::Cancelled {
        key: "the work is done already".to_owned(),
    }
}

#[test]
fn result_that_json_does_not_have_fails_the_attempt() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let once = client.once("a").max_attempts(1);
    let made = once.call(|_| Ok::<_, Error>(BTreeMap::from([((1, 2), 3)])));
    let error = made.unwrap_err();
    assert!(
        matches!(error, Error::UnusableResult { text: None, .. }),
        "{error}"
    );
    let Err(Error::WorkFailed { reason, .. }) = once.begin() else {
        panic!("the attempt has not failed");
    };
    assert!(reason.starts_with("the result was refused: "), "{reason}");
}

#[test]
fn failed_work_waits_for_its_delay() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let once = client.once("mail").retry_delay(3600 * SECOND);
    begun(once.begin().unwrap())
        .fail("connection refused")
        .unwrap();
    assert!(matches!(once.try_begin(), Err(Error::NotAcquired { .. })));
    server.ask("DEL mail");
    begun(once.try_begin().unwrap());
}

#[test]
fn result_that_is_kept_forever_has_no_end() {
    let server = Server::start();
    let client = Client::open(server.url()).unwrap();
    let once = client.once("charge").forever();
    begun(once.begin().unwrap()).done(None).unwrap();
    assert!(matches!(
        once.result().unwrap(),
        Outcome::Done { result: None, .. }
    ));
    let info = server.ask("DONCE.INFO charge");
    assert!(info.field("kept-until-unix-ms").is_nil(), "{info:?}");
}

#[test]
fn worker_without_the_right_to_look_is_only_not_told_who_holds() {
    let server = Server::start();
    let worker = "ACL SETUSER worker on >secret resetchannels ~jobs:* -@all +@connection -@dangerous \
                  +dlock.acquire +dlock.release +dlock.renew";
    server.ask(worker);
    let url = format!("redis://worker:secret@127.0.0.1:{}", server.port());
    let client = Client::open(url).unwrap().with_retry_for(Duration::ZERO);
    client.ping().unwrap();
    let lock = client.lock("jobs:1");
    let hold = lock.acquire().unwrap();
    let waiting = {
        let lock = lock
            .clone()
            .on_progress(|progress| assert_eq!(progress.place, 1));
        thread::spawn(move || lock.acquire())
    };
    server.wait_for_waiters(1);
    let error = lock.try_acquire().unwrap_err();
    assert!(matches!(error, Error::NotAcquired { holders, .. } if holders.is_empty()));
    hold.release().unwrap();
    waiting.join().unwrap().unwrap();
    let forbidden = client.lock("other").acquire().unwrap_err();
    assert!(!forbidden.is_unreachable(), "{forbidden}");
    assert!(
        Client::open(server.url())
            .unwrap()
            .lock("other")
            .try_acquire()
            .is_ok()
    );
}
