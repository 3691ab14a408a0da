//! Payloads of RESTORE with what no command would accept: too many kept places, places that are kept for too long, long
//! pauses, leases and results. A primary refuses them and says why; files and replicas are believed.
//!
//! The exact bounds are in the engine's tests (`restored`).

use super::payload::{Payload, dump, good_hold, plain_server};
use crate::support::steps::*;
use crate::support::*;

/// The lines about refused values in a server's log.
fn refusals(server: &Server) -> Vec<String> {
    let log = server.log_text();
    let lines = log
        .lines()
        .filter(|line| line.contains("a value is refused: "));
    lines.map(str::to_owned).collect()
}

fn place(number: u64, keep_ms: u64) -> String {
    let (fence, since) = (unix_ms() * 1_000 + number, unix_ms());
    let token = format!("p{number}");
    let len = token.len();
    format!("PLACE {fence} exclusive 30000 {keep_ms} NONE {since} {len}:{token} 0:")
}

/// A payload of a lock, with these changes.
fn lock(client: &mut Client, changes: &[String]) -> Vec<u8> {
    let changes: Vec<_> = changes.iter().map(String::as_str).collect();
    client.ask("DLOCK.ACQUIRE like");
    Payload::like(client, "like")
        .string(&packed("lock", &changes))
        .end()
}

#[track_caller]
fn assert_refused(server: &Server, payload: &[u8], why: &str) {
    let mut client = server.connect();
    let before = refusals(server).len();
    let reply = call!(client, "RESTORE", "bad", 0, payload);
    assert!(
        reply.error().starts_with("ERR Bad data format"),
        "{reply:?}"
    );
    assert_eq!(client.ask("EXISTS bad"), 0);
    let lines = refusals(server);
    assert_eq!(lines.len(), before + 1, "{lines:?}");
    let line = lines.last().expect("a line");
    assert!(line.contains(why) && line.contains("(key 'bad')"), "{line}");
}

/// One RESTORE brought 100,000 places. From then on all tenants of the server were told QUEUEFULL.
#[test]
fn payload_with_more_places_than_there_is_room_for_is_refused_and_nobody_is_told_queuefull() {
    let server = Server::builder()
        .config("dsync.max-waiters", 200)
        .config("dsync.max-waiters-per-key", 100)
        .start();
    let mut client = server.connect();
    let many: Vec<_> = (0..51).map(|number| place(number, 60_000)).collect();
    let payload = lock(&mut client, &many);
    let why = "no room for its 51 kept places: half of dsync.max-waiters-per-key is 50";
    assert_refused(&server, &payload, why);
    assert_eq!(server.info_number("dsync", "dsync_waiters"), 0);
    client.ask("DLOCK.ACQUIRE other").grant();
    let waits = client.ask("DLOCK.ACQUIRE other TOKEN mine QUEUE 60000");
    assert_eq!(waits.as_array()[0], "WAITING");
    // 1 + 50 + 50 > 100.
    let fits = lock(&mut client, &many[..50]);
    assert_eq!(call!(client, "RESTORE", "one", 0, &fits), "OK");
    let why = "no room for its 50 kept places: half of dsync.max-waiters is 100";
    assert_refused(&server, &fits, why);
    assert_calm(&server);
}

/// A place was kept for 30 days, where QUEUE allows a minute, and a pause lasted for 8,800 years.
#[test]
fn payload_that_lasts_too_long_is_refused_and_the_line_names_the_bound() {
    let server = Server::start();
    let mut client = server.connect();
    let kept = lock(&mut client, &[place(1, 2_592_000_000)]);
    let why = "it keeps a place for 2592000000 ms, and QUEUE allows 1000 to 60000";
    assert_refused(&server, &kept, why);
    let paused = lock(&mut client, &[format!("PAUSE {}", (1_u64 << 48) - 2)]);
    assert_refused(&server, &paused, "ms more, and PAUSE allows 2592000000");
    let mut hold = good_hold();
    hold.lease = 86_400_001;
    let held = Payload::like(&mut client, "like")
        .string(&hold.packed())
        .end();
    let why = "it has a lease of 86400001 ms, and dsync.max-lease-ms is 86400000";
    assert_refused(&server, &held, why);
    // What the operator allows, a payload may bring.
    client.ask("CONFIG SET dsync.max-lease-ms 86400001");
    assert_eq!(call!(client, "RESTORE", "good", 0, &held), "OK");
    assert_calm(&server);
}

#[test]
fn payload_with_long_result_is_refused() {
    let server = plain_server();
    let mut client = server.connect();
    client.ask("DONCE.BEGIN work TOKEN t");
    let result = "x".repeat(1_000);
    client.ask(format!("DONCE.DONE work t RESULT {result}"));
    let payload = dump(&mut client, "work");
    client.ask("CONFIG SET dsync.max-result-bytes 999");
    let why = "its result or reason has 1000 bytes, and dsync.max-result-bytes is 999";
    assert_refused(&server, &payload, why);
}

/// RESTORE is replicated as it came. A replica with smaller bounds, and a server whose bounds were lowered, must not
/// refuse what they have to keep.
#[test]
fn bounds_do_not_apply_to_replicas_and_own_files() {
    let mut primary = Server::builder()
        .config("dsync.max-lease-ms", 2_592_000_000_u64)
        .config("appendonly", "yes")
        .config("appendfsync", "always")
        .config("enable-debug-command", "yes")
        .start();
    let replica = Server::builder().replica_of(&primary).start();
    replica.wait_for_sync();
    let mut client = primary.connect();
    client.ask("DLOCK.ACQUIRE long EX 864000 TOKEN t").grant();
    let payload = dump(&mut client, "long");
    assert_eq!(call!(client, "RESTORE", "copy", 0, &payload), "OK");
    replica.wait_to_catch_up_with(&primary);
    assert_eq!(replica.digest("copy"), primary.digest("copy"));
    assert_eq!(refusals(&replica), [] as [String; 0]);

    client.ask("CONFIG SET dsync.max-lease-ms 1000");
    let refused = call!(client, "RESTORE", "other", 0, &payload);
    assert!(refused.is_error(), "{refused:?}");
    replica.wait_to_catch_up_with(&primary);
    assert_eq!(replica.connect().ask("EXISTS other"), 0);
    let before = primary.digest("copy");
    assert_eq!(client.ask("DEBUG RELOAD"), "OK");
    assert_eq!(primary.digest("copy"), before);
    primary.kill9();
    primary.configure("dsync.max-lease-ms", 1_000);
    primary.start_again();
    assert_eq!(primary.digest("copy"), before, "from the AOF");
}

/// Whoever may use RESTORE could fill the disk with lines of the log. And nobody could see how many there were.
#[test]
fn refused_payloads_are_logged_ten_a_second_and_counted() {
    const SENT: u64 = 2_000;
    let server = Server::start();
    let mut client = server.connect();
    let beyond = lock(&mut client, &[place(1, 60_001)]);
    let malformed = Payload::like(&mut client, "like").string(b"forged").end();
    let since = std::time::Instant::now();
    for _ in 0..SENT / 200 {
        for payload in [&beyond, &malformed] {
            for _ in 0..100 {
                send!(client, "RESTORE", "bad", 0, payload);
            }
            for _ in 0..100 {
                assert!(client.reply().is_error());
            }
        }
    }
    assert_eq!(server.info_number("dsync", "dsync_refused_values"), SENT);
    let left_out = || {
        let log = server.log_text();
        let sums = log.lines().filter_map(|line| {
            let number = line.split(" more values were refused").next()?;
            (number.len() < line.len()).then(|| number.rsplit(' ').next())?
        });
        sums.map(|number| number.parse::<u64>().expect("a number"))
            .sum::<u64>()
    };
    eventually("the number of those without a line", SOON, || {
        refusals(&server).len() as u64 + left_out() == SENT
    });
    // Each second that has begun may have ten.
    let seconds = since.elapsed().as_secs() + 2;
    let lines = refusals(&server).len() as u64;
    assert!(lines <= 10 * seconds, "{lines} lines in {seconds} s");
}
