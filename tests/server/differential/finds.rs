//! What the comparison must find, and what it must not: a difference in a reply, in the stream, in a payload and in
//! everything else that is compared is found; other tokens, fences and times are none.

use super::at_rest::steady;
use super::masks::{Masks, difference};
use super::side::Side;
use crate::lifecycle::payload::{STRING, sealed};
use crate::support::steps::unix_ms;
use crate::support::*;

/// Shows what was recorded of one side.
fn recorded(show: impl FnOnce(&mut Masks) -> Vec<String>) -> Vec<String> {
    let mut masks = Masks::default();
    masks.begin();
    show(&mut masks)
}

/// A grant as a server answers it, `ago` microseconds ago.
fn grant(token: &str, ago: i64) -> Reply {
    let fence = unix_ms() as i64 * 1_000 - ago;
    Reply::Array(vec![Reply::Bulk(token.into()), Reply::Int(fence)])
}

const MADE: [&str; 2] = [
    "1e97e7cf-554a-4ab5-88ab-9aa931fb75f2",
    "a3f1c0de-0b5a-4c1d-9f77-5a0d5a4b1c22",
];

#[test]
fn comparison_finds_a_difference_in_a_reply() {
    let [one, other] = MADE;
    let replies = |replies: &[Reply]| {
        recorded(|masks| replies.iter().map(|reply| masks.reply(reply)).collect())
    };
    let old = replies(&[grant(one, 5), grant("t1", 9), grant(one, 5)]);
    assert_eq!(
        difference(
            &old,
            &replies(&[grant(other, 70), grant("t1", 90), grant(other, 70)])
        ),
        None
    );
    // Another token of a client, other fences that are equal, another type, one reply less.
    for new in [
        replies(&[grant(other, 70), grant("t2", 90), grant(other, 70)]),
        replies(&[grant(other, 70), grant("t1", 70), grant(other, 70)]),
        replies(&[grant(other, 70), Reply::Nil, grant(other, 70)]),
        replies(&[grant(other, 70), grant("t1", 90)]),
    ] {
        assert!(difference(&old, &new).is_some(), "{new:?}");
    }
    let error = |text: &str| replies(&[Reply::Error(text.to_owned())]);
    assert_eq!(
        difference(&error("ERR one"), &error("ERR two")),
        Some("old: -ERR one\nnew: -ERR two".to_owned())
    );
    let left = |field: &str, ms: i64| {
        replies(&[Reply::Array(vec![
            Reply::Bulk(field.into()),
            Reply::Int(ms),
        ])])
    };
    assert_eq!(
        difference(
            &left("lease-left-ms", 599_000),
            &left("lease-left-ms", 598_000)
        ),
        None
    );
    assert_eq!(difference(&left("age-ms", 3), &left("age-ms", 9)), None);
    assert!(
        difference(
            &left("lease-left-ms", 599_000),
            &left("lease-left-ms", 699_000)
        )
        .is_some()
    );
    assert!(difference(&left("holders", 3), &left("holders", 9)).is_some());
}

#[test]
fn comparison_finds_no_difference_in_the_order_of_modules() {
    let text = |text: &str| Reply::Bulk(text.into());
    let hello = |names: &[&str], in_maps: bool| {
        let module = |name: &&str| match in_maps {
            true => Reply::Map(vec![
                (text("name"), text(name)),
                (text("ver"), Reply::Int(1)),
            ]),
            false => Reply::Array(
                ["name", name, "ver", "1", "path", "p", "args", "none"]
                    .map(text)
                    .to_vec(),
            ),
        };
        let modules = Reply::Array(names.iter().map(module).collect());
        match in_maps {
            true => Reply::Map(vec![(text("modules"), modules)]),
            false => Reply::Array(vec![text("modules"), modules]),
        }
    };
    for in_maps in [true, false] {
        let of = |names: &[&str]| steady(&hello(names, in_maps));
        assert_eq!(of(&["lua", "dsync"]), of(&["dsync", "lua"]));
        assert_ne!(of(&["lua", "dsync"]), of(&["dsync"]));
    }
}

/// A lock's state as DSYN carries it.
fn lock(ago: i64, lease: i64, token: &str) -> Vec<u8> {
    let now = unix_ms() as i64 - ago;
    let fence = now * 1_000 + ago;
    let length = token.len();
    let grant = format!(
        "GRANT {fence} exclusive {lease} {} {now} 0 {length}:{token} 0:",
        now + lease
    );
    packed("lock", &[&grant])
}

#[test]
fn comparison_finds_a_difference_in_the_stream() {
    let stream = |packed: Vec<u8>| {
        recorded(|masks| vec![masks.command(&[STREAM.into(), b"key".to_vec(), packed])])
    };
    let old = stream(lock(0, 600_000, "t"));
    assert_eq!(difference(&old, &stream(lock(500, 600_000, "t"))), None);
    for new in [
        lock(0, 700_000, "t"),
        lock(0, 600_000, "u"),
        packed("lock", &["VANISH"]),
    ] {
        assert!(difference(&old, &stream(new)).is_some());
    }
    let expire = |option: &[&str]| {
        let words = ["PEXPIREAT", "key", "9"].iter().chain(option);
        let command: Vec<Vec<u8>> = words.map(|word| word.as_bytes().to_vec()).collect();
        recorded(|masks| vec![masks.command(&command)])
    };
    assert!(difference(&expire(&["GT"]), &expire(&[])).is_some());
}

#[test]
fn comparison_finds_a_difference_in_a_dump() {
    let dump = |encoding: u8, packed: &[u8]| {
        let mut body = vec![7, 0x81, 1, 2, 3, 4, 5, 6, 7, encoding, STRING, 0x80];
        body.extend_from_slice(&(packed.len() as u32).to_be_bytes());
        body.extend_from_slice(packed);
        body.push(0);
        recorded(|masks| vec![masks.dump(&sealed(&body, [10, 0]))])
    };
    let old = dump(2, &lock(0, 600_000, "t"));
    assert_eq!(difference(&old, &dump(2, &lock(500, 600_000, "t"))), None);
    assert!(difference(&old, &dump(3, &lock(0, 600_000, "t"))).is_some());
    assert!(difference(&old, &dump(2, &lock(0, 600_000, "u"))).is_some());
}

#[test]
fn comparison_finds_a_hold_wherever_it_shows() {
    let seen = |side: &mut Side| {
        side.masks.begin();
        side.read();
        let mut lines = side.shown().0;
        lines.extend(side.info());
        lines.extend(side.view());
        lines.extend(side.files());
        lines
    };
    let [mut without, mut with] = [(); 2].map(|()| Side::start(&module_path(), 1));
    let words = ["DLOCK.ACQUIRE", "a", "TOKEN", "t", "PX", "600000"];
    assert!(!with.control.call(&words).is_error());
    let (without, with) = (seen(&mut without), seen(&mut with));
    for place in [
        "event:",
        "modified:",
        "stream:",
        "INFO: dsync_holds:",
        "INFO: dsync_lock_granted_at_once:",
        "primary DSYNC.HOLDS",
        "primary 0 a DUMP:",
        "primary 0 a DLOCK.INFO:",
        "replica event:",
        "replica modified:",
        "replica 0 a DUMP:",
        "replica 0 a DLOCK.INFO:",
        "AOF:",
        "rewritten AOF:",
    ] {
        let of = |lines: &[String]| -> Vec<String> {
            let lines = lines.iter().filter(|line| line.starts_with(place));
            lines.cloned().collect()
        };
        assert!(difference(&of(&without), &of(&with)).is_some(), "{place}");
    }
}
