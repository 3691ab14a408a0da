//! Payloads and RDB files that are damaged, or of another format version: RESTORE refuses them, and the server does not
//! start from such a file.
//!
//! The key, its waiters and the server are as they were. Payloads with correct checksums are in `forged_payloads`.

use super::payload::{add_fixtures, crc64, dump, opened, others, plain_server, sealed};
use crate::support::steps::{SOON, assert_calm};
use crate::support::*;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

#[test]
fn checksum_equals_that_of_the_server() {
    assert_eq!(crc64(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
    let server = Server::start();
    let mut client = server.connect();
    for (key, _) in add_fixtures(&mut client) {
        let payload = dump(&mut client, key);
        let (body, version) = opened(&payload);
        assert_eq!(sealed(&body, version), payload, "{key}");
    }
}

#[test]
fn payload_cut_anywhere_is_refused() {
    let server = Server::start();
    let mut client = server.connect();
    for (key, _) in add_fixtures(&mut client) {
        let (body, version) = opened(&dump(&mut client, key));
        for kept in 1..body.len() {
            let cut = sealed(&body[..kept], version);
            // The server reads on into the footer. If the checksum ends with the byte that the footer begins with, the
            // footer completes the value, and nothing is missing.
            if cut.starts_with(&body) {
                continue;
            }
            let reply = call!(client, "RESTORE", "bad", 0, cut);
            assert!(
                reply.error().starts_with("ERR Bad data format"),
                "{key} cut to {kept}: {reply:?}"
            );
        }
        assert_eq!(client.ask("EXISTS bad"), 0);
        assert_eq!(
            call!(client, "RESTORE", "bad", 0, sealed(&body, version)),
            "OK"
        );
        client.ask("DEL bad");
    }
    assert_calm(&server);
}

#[test]
fn payload_with_any_byte_changed_is_refused() {
    let server = plain_server();
    let mut client = server.connect();
    for (key, _) in add_fixtures(&mut client) {
        let (body, version) = opened(&dump(&mut client, key));
        // The first byte says that it is a module's value.
        for at in 1..body.len() {
            for byte in others(body[at]) {
                let mut bent = body.clone();
                bent[at] = byte;
                let reply = call!(client, "RESTORE", "bad", 0, sealed(&bent, version));
                assert!(
                    reply.error().starts_with("ERR Bad data format"),
                    "{key}, byte {at} of {} made {byte:#04x}: {reply:?}",
                    body.len()
                );
            }
        }
        assert_eq!(client.ask("EXISTS bad"), 0);
    }
    assert_calm(&server);
}

#[test]
fn payload_of_other_format_version_is_refused_and_logged() {
    let server = Server::start();
    let mut client = server.connect();
    let this = concat!("this is dsync ", env!("CARGO_PKG_VERSION"));
    for (key, _) in add_fixtures(&mut client) {
        let (body, version) = opened(&dump(&mut client, key));
        // The lowest ten bits of the module's number are the version of its encoding.
        assert_eq!((body[8] & 3, body[9]), (0, 2), "{key}");
        for (encoding, was) in [
            (1, "it was written by dsync 0.1.0, in format version 1"),
            (3, "it is of format version 3"),
        ] {
            let mut other = body.clone();
            other[9] = encoding;
            let seen = server.log_text().len();
            let reply = call!(client, "RESTORE", "bad", 0, sealed(&other, version));
            assert!(
                reply.error().starts_with("ERR Bad data format"),
                "{key}: {reply:?}"
            );
            let said =
                format!("a value is refused: {was}, and {this}, which reads format version 2");
            let log = server.log_text()[seen..].to_owned();
            assert!(log.contains(&said), "{said}: {log}");
        }
    }
    assert_calm(&server);
}

#[test]
fn refused_payload_leaves_key_and_waiters_alone() {
    let server = Server::start();
    let mut client = server.connect();
    add_fixtures(&mut client);
    let before = server.digest("lock");
    let mut waiter = server.connect();
    waiter.begin("DLOCK.ACQUIRE lock BLOCK 0 TOKEN waiter");
    server.wait_for_blocked(1);
    let (body, version) = opened(&dump(&mut client, "lock"));
    let cut = sealed(&body[..body.len() - 3], version);
    assert!(call!(client, "RESTORE", "lock", 0, cut, "REPLACE").is_error());
    assert_eq!(server.digest("lock"), before);
    waiter.expect_silence(Duration::from_millis(100));
    assert_eq!(
        client.ask("DLOCK.RELEASE lock 8f14e45f-ceea-467f-a8f5-6d1e2c3b4a59"),
        1
    );
    assert_eq!(
        waiter.recv(SOON).expect("the waiter is granted").grant().0,
        "waiter"
    );
}

#[test]
fn damaged_rdb_file_stops_the_start_and_is_logged() {
    let mut server = Server::builder().config("rdbcompression", "no").start();
    add_fixtures(&mut server.connect());
    let digested = server.connect().ask("DEBUG DIGEST");
    assert_eq!(server.connect().ask("SAVE"), "OK");
    server.kill9();
    let file = server.dir().join("dump.rdb");
    let good = fs::read(&file).expect("the file is read");
    let token = uuid::Uuid::parse_str("8f14e45f-ceea-467f-a8f5-6d1e2c3b4a59").expect("a UUID");
    let token = good.windows(16).position(|bytes| bytes == token.as_bytes());
    let token = token.expect("the token is found");
    // The token, the mark that it is a UUID, the lease before it, the owner behind it, and the checksum.
    for (at, byte) in [
        (token, good[token] ^ 1),
        (token - 1, 16),
        (token - 3, 0),
        (token + 16, 0xff),
        (token + 18, good[token + 18] ^ 0x80),
    ] {
        let mut bad = good[..good.len() - 8].to_vec();
        bad[at] = byte;
        let sum = crc64(&bad);
        bad.extend_from_slice(&sum.to_le_bytes());
        fs::write(&file, bad).expect("the file is written");
        let seen = server.log_text().len();
        let started = catch_unwind(AssertUnwindSafe(|| server.start_again()));
        let log = server.log_text()[seen..].to_owned();
        assert!(started.is_err(), "byte {at}: {log}");
        assert!(
            log.contains("a value is refused: its checksum is wrong"),
            "byte {at}: {log}"
        );
        assert!(
            !log.contains("panic") && !log.contains("crashed by signal"),
            "byte {at}: {log}"
        );
    }
    fs::write(&file, &good).expect("the file is restored");
    server.start_again();
    assert_eq!(server.connect().ask("DEBUG DIGEST"), digested);
}
