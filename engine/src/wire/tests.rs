//! The packed form byte by byte, and readers that get malformed input.

use super::*;
use crate::change::{Displaced, End, FinishedRound, KeptPlace};
use crate::hold::{Grant, Rest};
use crate::short_bytes::LaneName;
use crate::types::{Claim, Fence, LeaseMs, MAX_PERMITS, Rank, Token, UnixMs};

fn token(text: &[u8]) -> Token {
    Token::parse(text).expect("legal")
}

fn grant(claim: Claim, text: &[u8], owner: Option<&[u8]>) -> Change {
    Change::Grant(Grant {
        fence: Fence(1_700_000_000_000_123),
        token: token(text),
        claim,
        index: (claim == Claim::Indexed).then_some(MAX_PERMITS - 1),
        rest: Rest::None,
        lease: LeaseMs(30_000),
        deadline: UnixMs(1_700_000_030_000),
        granted: UnixMs(1_700_000_000_000),
        renewed: owner.is_some(),
        owner: owner.map(Into::into),
        lane: LaneName::default(),
    })
}

/// Returns the grant of a hold with this rest. One that rests has no token.
fn with_rest(claim: Claim, rest: Rest) -> Change {
    let Change::Grant(mut grant) = grant(claim, UUID, Some(b"o")) else {
        panic!("a grant")
    };
    if rest == Rest::Now {
        grant.token = Token::Uuid([0; 16]);
    }
    Change::Grant(Grant { rest, ..grant })
}

fn place_with_min_hold(claim: Claim) -> Change {
    let Change::Place(place) = place(claim, b"t", Some(b"o"), None) else {
        panic!("a place")
    };
    let min_hold = Some(LeaseMs(1_000));
    Change::Place(KeptPlace { min_hold, ..place })
}

fn place(claim: Claim, text: &[u8], owner: Option<&[u8]>, bound: Option<u32>) -> Change {
    Change::Place(KeptPlace {
        rank: Rank(Fence(1_700_000_000_000_123)),
        token: token(text),
        claim,
        lease: LeaseMs(30_000),
        min_hold: None,
        keep_ms: 60_000,
        bound,
        owner: owner.map(Into::into),
        lane: LaneName::default(),
        since: UnixMs(1_700_000_000_000),
    })
}

fn displaced_round(expected: Option<u32>) -> Change {
    Change::Displaced(Displaced::Round(FinishedRound {
        expected,
        done: 300,
        lapsed: u64::MAX,
        keep_until: UnixMs::MAX,
    }))
}

fn displaced_late(text: &[u8]) -> Change {
    Change::Displaced(Displaced::Late(token(text)))
}

fn delay(until: Option<u64>) -> Change {
    let until = until.map(UnixMs);
    Change::Delay { until }
}

const UUID: &[u8] = b"8f14e45f-ceea-467f-a8f5-6d1e2c3b4a59";

/// Returns the GRANT or PLACE in this lane.
fn laned(change: Change, lane: &[u8], limit: Option<u32>) -> Change {
    match change {
        Change::Grant(mut grant) => {
            grant.lane = lane.into();
            Change::Grant(grant)
        }
        Change::Place(mut place) => {
            (place.lane, place.bound) = (lane.into(), limit);
            Change::Place(place)
        }
        change => change,
    }
}

/// Returns every kind of change, each with a family that it fits: the samples of the table, and more of those whose fields
/// depend on flags.
fn every_kind() -> Vec<(Family, Change)> {
    let mut far = grant(Claim::Exclusive, UUID, None);
    if let Change::Grant(grant) = &mut far {
        grant.fence = Fence::MAX;
        grant.granted = UnixMs(0);
        grant.deadline = UnixMs::MAX;
        grant.lease = LeaseMs::MAX;
    }
    let mut near = far.clone();
    if let Change::Grant(grant) = &mut near {
        grant.fence = Fence(1);
        grant.granted = UnixMs::MAX;
        grant.deadline = UnixMs(0);
    }
    let long_owner = Some(&[b'o'; 128][..]);
    let permits = grant(Claim::Permits(MAX_PERMITS), &[b'x'; 128], long_owner);
    let shared = grant(Claim::Shared, b"a b\r\n\0\xff", Some(b"\xffo"));
    let in_lane = |claim| laned(grant(claim, b"t", Some(b"o")), &[b'l'; 128], None);
    let kept = |claim, limit| laned(place(claim, b"t", Some(b"o"), None), b"l", limit);
    let rests = |claim, ms| with_rest(claim, Rest::After(LeaseMs(ms)));
    let mut all = vec![
        (Family::Lock, grant(Claim::Exclusive, UUID, None)),
        (Family::Lock, shared),
        (Family::Lock, far),
        (Family::Lock, near),
        (Family::Lock, rests(Claim::Shared, LeaseMs::MAX.0)),
        (Family::Lock, with_rest(Claim::Exclusive, Rest::Now)),
        (Family::Lock, place_with_min_hold(Claim::Shared)),
        (Family::Semaphore, permits),
        (Family::Semaphore, grant(Claim::Indexed, UUID, Some(b"o"))),
        (Family::Semaphore, place(Claim::Indexed, b"t", None, None)),
        (Family::Semaphore, rests(Claim::Indexed, 1)),
        (Family::Semaphore, with_rest(Claim::Permits(2), Rest::Now)),
        (Family::Semaphore, place_with_min_hold(Claim::Indexed)),
        (Family::Semaphore, in_lane(Claim::Indexed)),
        (Family::Semaphore, in_lane(Claim::Permits(2))),
        (
            Family::Semaphore,
            kept(Claim::Permits(2), Some(MAX_PERMITS)),
        ),
        (Family::Semaphore, kept(Claim::Indexed, None)),
        (Family::Group, grant(Claim::Member, b"m", None)),
        (Family::Once, grant(Claim::Run, UUID, Some(b"host"))),
    ];
    for family in Family::ALL {
        for Sample { change, .. } in samples(family) {
            if !all.contains(&(family, change.clone())) {
                all.push((family, change));
            }
        }
    }
    all
}

fn packed(family: Family, more: bool, changes: &[Change]) -> Vec<u8> {
    let mut buffer = Vec::new();
    pack(&mut buffer, family, more, changes);
    buffer
}

fn unpacked(packed: &[u8]) -> Result<(Family, bool, Vec<Change>), Unreadable> {
    let unpacked = open(packed)?;
    let (family, more) = (unpacked.family, unpacked.more);
    Ok((family, more, unpacked.collect::<Result<_, _>>()?))
}

/// Appends the right checksum to any bytes: a checksum keeps out damage, but not an attacker.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    [bytes, &crc32c(bytes).to_le_bytes()].concat()
}

fn without_check(packed: &[u8]) -> &[u8] {
    &packed[..packed.len() - CHECK_LEN]
}

#[test]
fn every_kind_of_change_is_read_as_written() {
    for (family, change) in every_kind() {
        for more in [false, true] {
            let changes = [change.clone(), change.clone()];
            let read = unpacked(&packed(family, more, &changes));
            assert_eq!(read, Ok((family, more, changes.to_vec())));
        }
    }
    let none = packed(Family::Once, false, &[]);
    assert_eq!(unpacked(&none), Ok((Family::Once, false, vec![])));
}

/// The bytes must never change, because other servers and files of this version have them.
#[test]
fn packed_bytes_never_change() {
    let hex = |bytes: &[u8]| -> String { bytes.iter().map(|b| format!("{b:02x}")).collect() };
    let held = packed(Family::Lock, false, &[grant(Claim::Exclusive, UUID, None)]);
    assert_eq!(
        hex(&held),
        "020080fb80f9c0c1c4820300b0ea0100008f14e45fceea467fa8f56d1e2c3b4a59e16723df"
    );
    assert_eq!(held.len(), 37, "a held lock");
    let release = [
        Change::End {
            fence: Fence(300),
            how: End::Lapsed,
            at: UnixMs(127),
        },
        Change::Vanish,
    ];
    assert_eq!(
        hex(&packed(Family::Semaphore, true, &release)),
        "028102ac02027f070cd47b74"
    );
    let kept = packed(
        Family::Lock,
        false,
        &[place(Claim::Shared, b"t", Some(b"o"), None)],
    );
    assert_eq!(
        hex(without_check(&kept)),
        "03001101fb80f9c0c1c4820300b0ea01e0d4030174026f"
    );
    let heard = Change::Unheard {
        fence: Fence(300),
        keep_ms: 1_000,
    };
    let gone = Change::Leave {
        rank: Rank(Fence(300)),
    };
    let both = packed(Family::Once, false, &[heard, gone]);
    assert_eq!(hex(without_check(&both)), "030310ac02e80712ac02");
    let late = packed(Family::Once, false, &[displaced_late(b"t")]);
    assert_eq!(hex(without_check(&late)), "0403130174");
    let mut round = displaced_round(Some(1));
    if let Change::Displaced(Displaced::Round(round)) = &mut round {
        (round.lapsed, round.keep_until) = (0, UnixMs(127));
    }
    let round = packed(Family::Group, false, &[round]);
    assert_eq!(hex(without_check(&round)), "04021302ac02007f");
    let numbered = packed(
        Family::Semaphore,
        false,
        &[grant(Claim::Indexed, b"t", None)],
    );
    assert_eq!(
        hex(without_check(&numbered)),
        "050188bf843dfb80f9c0c1c4820300b0ea01000174"
    );
    let rests = [
        with_rest(Claim::Shared, Rest::After(LeaseMs(1_000))),
        with_rest(Claim::Shared, Rest::Now),
        place_with_min_hold(Claim::Shared),
        Change::Rest {
            fence: Fence(300),
            how: End::Released,
            at: UnixMs(127),
        },
        Change::End {
            fence: Fence(300),
            how: End::Rested,
            at: UnixMs(127),
        },
    ];
    let rests = packed(Family::Lock, false, &rests);
    assert_eq!(
        hex(without_check(&rests)),
        concat!(
            "0500",
            "97fb80f9c0c1c4820300b0ea01e80700008f14e45fceea467fa8f56d1e2c3b4a59016f",
            "a7fb80f9c0c1c4820300b0ea01016f",
            "1402e80701fb80f9c0c1c4820300b0ea01e0d4030174026f",
            "15ac02007f",
            "02ac02067f",
        )
    );
    let kept = [place(Claim::Indexed, b"t", None, None)];
    let kept = packed(Family::Semaphore, false, &kept);
    assert_eq!(
        hex(without_check(&kept)),
        "05011401fb80f9c0c1c4820300b0ea01e0d403017400"
    );
    let in_lane = [laned(grant(Claim::Permits(1), b"t", None), b"lane", None)];
    let in_lane = packed(Family::Semaphore, false, &in_lane);
    assert_eq!(
        hex(without_check(&in_lane)),
        "0501c001fb80f9c0c1c4820300b0ea01000174046c616e65"
    );
    let in_lane = [laned(
        place(Claim::Permits(1), b"t", None, None),
        b"lane",
        Some(2),
    )];
    let in_lane = packed(Family::Semaphore, false, &in_lane);
    assert_eq!(
        hex(without_check(&in_lane)),
        "05011404046c616e650301fb80f9c0c1c4820300b0ea01e0d403017400"
    );
}

#[test]
fn pack_replaces_what_the_buffer_had() {
    let mut buffer = Vec::new();
    for (family, change) in every_kind() {
        pack(&mut buffer, family, false, std::slice::from_ref(&change));
        assert_eq!(buffer, packed(family, false, &[change]));
    }
}

#[test]
fn string_cut_short_or_extended_is_refused() {
    for (family, change) in every_kind() {
        let whole = packed(family, false, std::slice::from_ref(&change));
        for kept in 0..whole.len() {
            let cut = &whole[..kept];
            assert_eq!(
                unpacked(cut),
                Err(Unreadable::Damaged),
                "{change:?} to {kept}"
            );
        }
        let written = without_check(&whole);
        for kept in 0..written.len() {
            let read = unpacked(&sealed(&written[..kept]));
            // A string of the first version with a family and no change is well-formed.
            let is_empty = kept == 2 && change.version() == VERSION;
            assert!(read.is_err() || is_empty, "{change:?} cut to {kept}");
        }
        for byte in 0..=0xff {
            let longer = [whole.as_slice(), &[byte]].concat();
            assert_eq!(unpacked(&longer), Err(Unreadable::Damaged), "{change:?}");
        }
    }
}

/// What comes behind a change that cannot be read would be read as anything.
#[test]
fn nothing_is_read_behind_what_is_unreadable() {
    for (family, change) in every_kind() {
        let one = without_check(&packed(family, false, std::slice::from_ref(&change))).to_vec();
        // No kind of change has this number.
        let bent = sealed(&[one.as_slice(), &[0xff], &one[2..]].concat());
        let mut read = open(&bent).expect("its check is right");
        assert_eq!(read.next(), Some(Ok(change)));
        assert!(matches!(read.next(), Some(Err(_))));
        assert_eq!(read.next(), None);
    }
}

#[test]
fn string_with_any_flipped_bit_is_refused() {
    for (family, change) in every_kind() {
        let whole = packed(family, false, &[change]);
        for bit in 0..8 * whole.len() {
            let mut bent = whole.clone();
            bent[bit / 8] ^= 1 << (bit % 8);
            assert!(unpacked(&bent).is_err(), "bit {bit}");
        }
    }
}

#[test]
fn unknown_version_family_and_kind_are_named() {
    let good = packed(Family::Lock, false, &[Change::Vanish]);
    for version in [0, 1, 6, 0xff] {
        let mut bent = good.clone();
        bent[0] = version;
        assert_eq!(unpacked(&bent), Err(Unreadable::Version(version)));
    }
    for family in [4, 5, 0x7f] {
        assert_eq!(
            unpacked(&sealed(&[VERSION, family])),
            Err(Unreadable::Family(family))
        );
    }
    for kind in [0, 22, 0x7f] {
        assert_eq!(
            unpacked(&sealed(&[VERSION, 0, kind])),
            Err(Unreadable::Kind(kind))
        );
    }
    assert_eq!(
        Unreadable::Version(6).to_string(),
        "it is of format version 6, and this dsync knows 2 to 5"
    );
    assert_eq!(
        Unreadable::Kind(14).to_string(),
        "its change 0x0e is not known here"
    );
}

/// One field at a time: below and above its bounds, of no kind, or in a longer form. In strings of all versions, because
/// the version of an END depends on its field.
#[test]
fn malformed_field_of_any_change_is_refused() {
    for family in Family::ALL {
        for Sample { change, malformed } in samples(family) {
            let strings = malformed.iter().flat_map(|bytes| {
                let head = |version| [version, family.number()];
                (VERSION..=NEWEST).map(move |version| [&head(version)[..], bytes].concat())
            });
            for string in strings {
                let read = unpacked(&sealed(&string));
                let is_refused =
                    matches!(read, Err(Unreadable::Field { verb, .. }) if verb == change.verb());
                assert!(is_refused, "{change:?}, {string:?}: {read:?}");
            }
        }
    }
}

/// Each bound in figures, at one change that has it, and what depends on flags or on the family.
#[test]
fn fields_out_of_bounds_and_longer_forms_are_refused() {
    let million_and_two: &[u8] = &[0xc2, 0x84, 0x3d];
    let cases: &[(&str, u8, Vec<u8>)] = &[
        ("LIMIT without", 1, vec![3]),
        ("LIMIT 0", 1, vec![3, 0]),
        ("LIMIT of a longer form", 1, vec![3, 0x81, 0]),
        ("LIMIT 1000002", 1, [&[3], million_and_two].concat()),
        ("PIN 1000001", 1, [&[4], million_and_two].concat()),
        (
            "a number of 65 bits",
            1,
            [&[8, 0, 0][..], &[0xff; 9], &[2]].concat(),
        ),
        (
            "a number of eleven bytes",
            1,
            [&[8, 0, 0][..], &[0xff; 10], &[0]].concat(),
        ),
        ("RENEW of fence 0", 0, vec![1, 0, 1, 1]),
        (
            "RENEW of fence 2^53",
            0,
            [&[1], &[0x80; 7][..], &[0x10, 1, 1]].concat(),
        ),
        ("RENEW for no time", 0, vec![1, 1, 0, 1]),
        (
            "RENEW for 31 days",
            0,
            vec![1, 1, 0x80, 0xf4, 0xe1, 0xfd, 9, 1],
        ),
        (
            "RENEW until 2^48",
            0,
            [&[1, 1, 1], &[0x80; 6][..], &[0x40]].concat(),
        ),
        ("END of no kind", 0, vec![2, 1, 7, 1]),
        ("END of a rest", 0, vec![2, 1, 6, 1]),
        ("RECORD with a reason 4", 3, vec![13, 1, 1, 4, 0, 0]),
        ("RECORD that is late twice", 3, vec![13, 1, 1, 0, 2, 0]),
        (
            "GRANT, shared, of permits",
            1,
            vec![0x84, 1, 1, 0, 1, 0, 1, b't'],
        ),
        ("GRANT of 0 permits", 1, vec![0x80, 0, 1, 0, 1, 0, 1, b't']),
        ("GRANT of fence 0", 0, vec![0x80, 0, 0, 1, 0, 1, b't']),
        ("GRANT before 1970", 0, vec![0x80, 1, 1, 1, 0, 1, b't']),
        (
            "GRANT until before 1970",
            0,
            vec![0x80, 1, 0, 1, 3, 1, b't'],
        ),
        (
            "GRANT by a token of 129 bytes",
            0,
            [&[0x80, 1, 0, 1, 0, 0x81, 1][..], &[b't'; 129]].concat(),
        ),
        (
            "GRANT by a UUID as a text",
            0,
            [&[0x80, 1, 0, 1, 0, 36][..], UUID].concat(),
        ),
        ("GRANT by no owner", 0, vec![0x82, 1, 0, 1, 0, 1, b't', 0]),
        (
            "GRANT by an owner of 129 bytes",
            0,
            [&[0x82, 1, 0, 1, 0, 1, b't', 0x81, 1][..], &[b'o'; 129]].concat(),
        ),
        (
            "GRANT by half an owner",
            0,
            vec![0x82, 1, 0, 1, 0, 1, b't', 2, b'o'],
        ),
    ];
    let later: &[(&str, u8, Vec<u8>)] = &[
        ("PLACE of claim 2", 0, vec![17, 2, 1, 0, 1, 1, 1, b't', 0]),
        ("PLACE of 0 permits", 1, vec![17, 0, 1, 0, 1, 1, 1, b't', 0]),
        (
            "PLACE of 0 attempts",
            3,
            vec![17, 1, 1, 0, 1, 1, 1, b't', 0],
        ),
        ("PLACE of number 0", 2, vec![17, 0, 0, 1, 1, 1, b't', 0]),
        ("PLACE before 1970", 2, vec![17, 1, 1, 1, 1, 1, b't', 0]),
        ("PLACE for no lease", 2, vec![17, 1, 0, 0, 1, 1, b't', 0]),
        ("PLACE for no time", 2, vec![17, 1, 0, 1, 0, 1, b't', 0]),
        (
            "PLACE by an owner of no bytes",
            2,
            vec![17, 1, 0, 1, 1, 1, b't', 1],
        ),
        (
            "PLACE by an owner of 129 bytes",
            2,
            [&[17, 1, 0, 1, 1, 1, b't', 0x82, 1][..], &[b'o'; 129]].concat(),
        ),
    ];
    let latest: &[(&str, u8, Vec<u8>)] = &[
        ("DISPLACED of a lock", 0, vec![19, 1, b't']),
        ("DISPLACED of a semaphore", 1, vec![19, 0, 1, 0, 1]),
        ("DISPLACED of an empty token", 3, vec![19, 1]),
        ("DISPLACED without a moment", 2, vec![19, 0, 1, 0]),
    ];
    let indexed: &[(&str, u8, Vec<u8>)] = &[
        ("GRANT without its index", 1, vec![0x88]),
        (
            "GRANT of an index, shared",
            1,
            vec![0x8c, 1, 1, 0, 1, 0, 1, b't'],
        ),
        (
            "GRANT of a lock's index",
            0,
            vec![0x88, 1, 1, 0, 1, 0, 1, b't'],
        ),
        (
            "PLACE of a lock's index",
            0,
            vec![20, 1, 1, 0, 1, 1, 1, b't', 0],
        ),
        (
            "GRANT of index 1000000",
            1,
            [&[0x88, 0xc0, 0x84, 0x3d], &[1, 0, 1, 0, 1, b't'][..]].concat(),
        ),
        ("GRANT of min-hold 0", 0, vec![0x90, 1, 0, 1, 0, 0, 1, b't']),
        (
            "GRANT, min-hold of a member",
            2,
            vec![0x90, 1, 0, 1, 1, 0, 1, b't'],
        ),
        (
            "GRANT of a rest and a min-hold",
            0,
            vec![0xb0, 1, 0, 1, 1, 0, 1, b't'],
        ),
        ("GRANT of a run that rests", 3, vec![0xa0, 1, 0, 1]),
        ("REST of a member", 2, vec![21, 1, 0, 1]),
        ("END that is no rest", 0, vec![2, 1, 0, 1]),
        (
            "PLACE of no option",
            1,
            vec![20, 0, 1, 1, 0, 1, 1, 1, b't', 0],
        ),
        (
            "PLACE of an unknown option",
            1,
            vec![20, 8, 1, 1, 0, 1, 1, 1, b't', 0],
        ),
        (
            "PLACE of min-hold 0",
            0,
            vec![20, 2, 0, 0, 1, 0, 1, 1, 1, b't', 0],
        ),
        (
            "PLACE, min-hold of a member",
            2,
            vec![20, 2, 1, 1, 0, 1, 1, 1, b't', 0],
        ),
        ("GRANT of 1 permit", 1, vec![0x80, 1, 1, 0, 1, 0, 1, b't']),
        ("PLACE of 1 permit", 1, vec![17, 1, 1, 0, 1, 1, 1, b't', 0]),
        (
            "GRANT in a lane of no bytes",
            1,
            vec![0xc0, 1, 1, 0, 1, 0, 1, b't', 0],
        ),
        (
            "GRANT of a lock in a lane",
            0,
            vec![0xc0, 1, 0, 1, 0, 1, b't', 1, b'l'],
        ),
        (
            "PLACE in a lane of 129 bytes",
            1,
            [
                &[20, 4, 129, 1],
                &[b'l'; 129][..],
                &[0, 1, 1, 0, 1, 1, 1, b't', 0],
            ]
            .concat(),
        ),
        (
            "PLACE with a lane limit of 1000001",
            1,
            vec![20, 4, 1, b'l', 0xc2, 0x84, 0x3d, 1, 1, 0, 1, 1, 1, b't', 0],
        ),
        (
            "PLACE of a member in a lane",
            2,
            vec![20, 4, 1, b'l', 0, 1, 0, 1, 1, 1, b't', 0],
        ),
    ];
    let cases = cases.iter().map(|case| (VERSION, case));
    let later = later.iter().map(|case| (3, case));
    let latest = latest.iter().map(|case| (4, case));
    let indexed = indexed.iter().map(|case| (NEWEST, case));
    let all = cases.chain(later).chain(latest).chain(indexed);
    for (version, (what, family, change)) in all {
        let head = [version, *family];
        let read = unpacked(&sealed(&[&head[..], change].concat()));
        assert!(
            matches!(read, Err(Unreadable::Field { verb, .. }) if what.starts_with(verb) || verb == "LIMITS"),
            "{what}: {read:?}"
        );
    }
    // The same changes without the mistake are accepted.
    for (family, change) in [
        (0, vec![0x80, 1, 0, 1, 2, 1, b't']),
        (0, vec![0x82, 1, 0, 1, 0, 1, b't', 1, b'o']),
        (1, vec![0x80, 1, 1, 0, 1, 0, 1, b't']),
        (3, vec![13, 1, 1, 0, 0, 0]),
    ] {
        let read = unpacked(&sealed(&[&[VERSION, family][..], &change].concat()));
        assert!(read.is_ok(), "{change:?}: {read:?}");
    }
    for (family, change) in [
        (1, vec![0x88, 0xbf, 0x84, 0x3d, 1, 0, 1, 0, 1, b't']),
        (1, vec![20, 1, 1, 0, 1, 1, 1, b't', 0]),
        (1, vec![20, 3, 1, 1, 0, 1, 1, 1, b't', 0]),
        (0, vec![20, 2, 1, 0, 1, 0, 1, 1, 1, b't', 0]),
        (0, vec![0x90, 1, 0, 1, 1, 0, 1, b't']),
        (0, vec![0xa0, 1, 0, 1]),
        (0, vec![21, 1, 0, 1]),
        (0, vec![2, 1, 6, 1]),
        (1, vec![0xc0, 1, 1, 0, 1, 0, 1, b't', 1, b'l']),
        (
            1,
            vec![20, 4, 1, b'l', 0xc1, 0x84, 0x3d, 1, 1, 0, 1, 1, 1, b't', 0],
        ),
        (1, vec![20, 7, 1, 1, b'l', 0, 1, 0, 1, 1, 1, b't', 0]),
    ] {
        let read = unpacked(&sealed(&[&[5, family][..], &change].concat()));
        assert!(read.is_ok(), "{change:?}: {read:?}");
    }
    for (family, change) in [
        (0, vec![17, 1, 1, 0, 1, 1, 1, b't', 0]),
        (2, vec![17, 1, 0, 1, 1, 1, b't', 2, b'o']),
        (3, vec![17, 2, 1, 0, 1, 1, 1, b't', 0]),
    ] {
        let read = unpacked(&sealed(&[&[3, family][..], &change].concat()));
        assert!(read.is_ok(), "{change:?}: {read:?}");
    }
}

/// A length is compared with its bound and with the bytes that are left before anything is allocated.
#[test]
fn text_shorter_than_its_length_is_refused() {
    for len in [1_u64, 1 << 20, 16 << 20, 1 << 32, u64::MAX] {
        let mut bytes = vec![VERSION, Family::Once.number(), 10, 1, 1];
        Writer(&mut bytes).number(len);
        assert!(unpacked(&sealed(&bytes)).is_err(), "{len}");
    }
}

/// A small random generator (SplitMix64), the same in every run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut n = self.0;
        n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        n ^ (n >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

/// With any input the reader does not panic, returns no more changes than there are bytes, and accepts only strings
/// that `pack` writes.
#[test]
fn random_input_never_panics_and_accepted_input_repacks() {
    let kinds = every_kind();
    let mut numbers = Numbers(1);
    let (mut accepted, mut refused) = (0, 0);
    for _ in 0..200_000 {
        let (family, change) = &kinds[numbers.below(kinds.len())];
        let mut changes = vec![change.clone()];
        while numbers.below(3) == 0 {
            let (of, change) = &kinds[numbers.below(kinds.len())];
            if of == family && change.version() == changes[0].version() {
                changes.push(change.clone());
            }
        }
        let whole = packed(*family, numbers.below(2) == 0, &changes);
        let mut bytes = without_check(&whole).to_vec();
        for _ in 0..=numbers.below(3) {
            let at = numbers.below(bytes.len());
            match numbers.below(7) {
                0 => bytes[at] ^= 1 << numbers.below(8),
                1 => bytes[at] = numbers.next().to_le_bytes()[0],
                2 => bytes.truncate(at.max(1)),
                3 => drop(bytes.remove(at)),
                4 => bytes.insert(at, numbers.next().to_le_bytes()[0]),
                5 => bytes.extend_from_slice(&numbers.next().to_le_bytes()),
                _ => {
                    bytes = (0..numbers.below(60) + 1)
                        .map(|_| numbers.next().to_le_bytes()[0])
                        .collect();
                }
            }
            if bytes.is_empty() {
                bytes.push(VERSION);
            }
        }
        if numbers.below(8) > 0 {
            bytes[0] = changes[0].version();
        }
        let bent = if numbers.below(8) == 0 {
            bytes
        } else {
            sealed(&bytes)
        };
        match unpacked(&bent) {
            Err(_) => refused += 1,
            Ok((family, more, changes)) => {
                accepted += 1;
                assert!(changes.len() <= bent.len());
                assert_eq!(packed(family, more, &changes), bent, "{changes:?}");
            }
        }
    }
    assert!(
        accepted > 5_000 && refused > 50_000,
        "{accepted}, {refused}"
    );
}

/// An older server can then follow everything but what it does not know.
#[test]
fn holds_and_places_with_options_share_no_string_with_others() {
    let changes = [
        grant(Claim::Permits(1), b"t", None),
        grant(Claim::Indexed, b"u", None),
        place(Claim::Indexed, b"v", None, None),
        laned(grant(Claim::Permits(1), b"x", None), b"l", None),
        laned(place(Claim::Permits(1), b"y", None, None), b"l", None),
        place(Claim::Permits(1), b"w", None, None),
    ];
    let slices = by_version(&changes).map(|slice| (slice[0].version(), slice.len()));
    assert_eq!(slices.collect::<Vec<_>>(), [(2, 1), (5, 4), (3, 1)]);
}

/// The same.
#[test]
fn changes_of_two_versions_never_share_a_string() {
    let grant = grant(Claim::Run, UUID, None);
    let delay = delay(Some(7));
    let late = displaced_late(UUID);
    let changes = [grant.clone(), grant, delay.clone(), delay, late];
    let slices: Vec<_> = by_version(&changes).map(<[Change]>::len).collect();
    assert_eq!(slices, [2, 2, 1]);
    for slice in by_version(&changes) {
        let whole = packed(Family::Once, false, slice);
        assert_eq!(whole[0], slice[0].version());
        for other in VERSION..=NEWEST {
            let mut written = without_check(&whole).to_vec();
            written[0] = other;
            let read = unpacked(&sealed(&written));
            assert_eq!(read.is_ok(), other == slice[0].version(), "as {other}");
        }
    }
}

#[test]
fn change_is_named_by_its_verb_and_fence() {
    let rank = Rank(Fence(7));
    let named = [
        (Change::Leave { rank }, "LEAVE 7"),
        (
            place(Claim::Shared, b"t", None, None),
            "PLACE 1700000000000123",
        ),
        (grant(Claim::Shared, b"t", None), "GRANT 1700000000000123"),
    ];
    for (change, name) in named {
        assert_eq!(change.to_string(), name);
    }
}

#[test]
fn index_is_below_the_largest_limit() {
    for (index, is_read) in [(MAX_PERMITS - 1, true), (MAX_PERMITS, false)] {
        let mut grant = grant(Claim::Indexed, b"token", None);
        if let Change::Grant(grant) = &mut grant {
            grant.index = Some(index);
        }
        let mut packed = Vec::new();
        pack(&mut packed, Family::Semaphore, false, &[grant]);
        let unpacked = open(&packed).expect("it has its check");
        let read: Result<Vec<_>, _> = unpacked.collect();
        assert_eq!(read.is_ok(), is_read, "{index}");
    }
}

/// A state is saved in strings that no reader may refuse for their length.
#[test]
fn string_has_room_for_reason_and_result_and_a_quarter_of_a_megabyte() {
    assert_eq!(MAX_LEN - 2 * MAX_RESULT_LEN, 256 * 1024);
}
