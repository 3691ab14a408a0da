//! A hold in its 56 bytes keeps every value exactly.

use super::*;
use crate::short_bytes::LaneName;
use crate::store::tests::XorShift;

fn grant(token: &[u8], owner: Option<&[u8]>) -> Grant {
    Grant {
        fence: Fence(7_000_000),
        token: Token::parse(token).expect("legal"),
        claim: Claim::Permits(3),
        index: None,
        rest: Rest::None,
        lease: LeaseMs(1_000),
        deadline: UnixMs(8_000),
        granted: UnixMs(7_000),
        renewed: false,
        owner: owner.map(Into::into),
        lane: LaneName::default(),
    }
}

#[test]
fn hold_keeps_token_lane_and_owner_of_every_length() {
    let uuid = b"8f14e45f-ceea-467f-a8f5-6d1e2c3b4a59".as_slice();
    let text = [b'x'; 128];
    for token in [uuid].into_iter().chain((1..=128).map(|len| &text[..len])) {
        for owner in [None, Some(0), Some(1), Some(16), Some(128)] {
            let owner = owner.map(|len| &text[..len]);
            for lane in [0, 1, 16, 128] {
                let grant = Grant {
                    lane: text[..lane].into(),
                    ..grant(token, owner)
                };
                let hold = Hold::new(&grant);
                assert_eq!(hold.to_grant(), grant, "{} bytes, {owner:?}", token.len());
                assert!(hold.has_token(&grant.token));
                assert!(
                    !hold.has_token(&Token::Uuid([0; 16])),
                    "a text is no UUID of zeros"
                );
            }
        }
    }
}

/// Every number at the bounds of its bytes, in random combinations: first as a grant, then through renewals and
/// new connections, which move the numbers into the box and out of it.
#[test]
fn hold_keeps_every_number_exactly() {
    let mut random = XorShift(0x9e37_79b9_7f4a_7c15);
    let bits = |random: &mut XorShift, max: u64| {
        let near = 1_u64 << random.below(64);
        (near - 1).wrapping_add(random.below(3)).min(max)
    };
    let (mut boxed, mut plain) = (0, 0);
    for _ in 0..200_000 {
        let fence = Fence(bits(&mut random, Fence::MAX.0));
        let lease = LeaseMs(bits(&mut random, u64::from(u32::MAX)) as u32);
        let granted = match random.below(4) {
            0 => bits(&mut random, u64::MAX),
            1 => fence.unix().0.saturating_sub(bits(&mut random, u64::MAX)),
            _ => fence.unix().0,
        };
        let deadline = match random.below(4) {
            0 => bits(&mut random, u64::MAX),
            1 => granted.saturating_add(bits(&mut random, u64::MAX)),
            _ => granted.saturating_add(u64::from(lease.0)),
        };
        let permits = match random.below(3) {
            0 => 1,
            1 => bits(&mut random, 1_000_000) as u32,
            _ => bits(&mut random, u64::from(u32::MAX)) as u32,
        }
        .max(1);
        let claims = [
            Claim::Exclusive,
            Claim::Shared,
            Claim::Permits(permits),
            Claim::Indexed,
            Claim::Member,
            Claim::Run,
        ];
        let mut expected = Grant {
            fence,
            lease,
            granted: UnixMs(granted),
            deadline: UnixMs(deadline),
            claim: claims[random.below_usize(claims.len())],
            renewed: random.below(2) == 0,
            ..grant(
                b"token",
                (random.below(2) == 0).then_some(b"owner".as_slice()),
            )
        };
        if random.below(3) == 0 {
            expected.rest = Rest::After(LeaseMs(
                1 + bits(&mut random, u64::from(u32::MAX - 1)) as u32,
            ));
        }
        // An index has the range of permits, from 0.
        expected.index = (expected.claim == Claim::Indexed).then_some(permits - 1);
        if random.below(2) == 0 {
            expected.token = Token::Uuid([7; 16]);
        }
        let mut hold = Hold::new(&expected);
        let (mut client, mut ephemeral, mut due) = (ClientId::NONE, false, LeaseUs(0));
        for _ in 0..3 {
            assert_eq!(hold.to_grant(), expected);
            assert_eq!((hold.client(), hold.is_ephemeral()), (client, ephemeral));
            assert_eq!(hold.due, due);
            let is_boxed = hold.boxed_numbers().is_some();
            *(if is_boxed { &mut boxed } else { &mut plain }) += 1;
            match random.below(3) {
                0 => {
                    client = ClientId(bits(&mut random, u64::MAX));
                    ephemeral = random.below(2) == 0;
                    hold.bind(client, ephemeral);
                }
                1 => {
                    due = LeaseUs(bits(&mut random, u64::MAX));
                    hold.due = due;
                }
                _ => {
                    expected.lease = LeaseMs(bits(&mut random, u64::from(u32::MAX)) as u32);
                    expected.deadline = UnixMs(match random.below(2) {
                        0 => bits(&mut random, u64::MAX),
                        _ => granted.saturating_add(u64::from(expected.lease.0)),
                    });
                    expected.renewed = true;
                    hold.renew(expected.lease, expected.deadline);
                }
            }
        }
    }
    assert!(boxed > 10_000 && plain > 10_000, "{boxed} {plain}");
}

#[test]
fn ordinary_hold_takes_no_heap_and_short_texts_one_box() {
    let uuid = b"8f14e45f-ceea-467f-a8f5-6d1e2c3b4a59".as_slice();
    let text = [b'x'; 128];
    let indexed = Hold::new(&Grant {
        claim: Claim::Indexed,
        index: Some(999_999),
        ..grant(uuid, None)
    });
    assert_eq!(indexed.heap_bytes(), 0);
    let paced = Hold::new(&Grant {
        rest: Rest::After(LeaseMs(1)),
        ..grant(uuid, Some(&text[..8]))
    });
    assert_eq!(paced.heap_bytes(), 32);
    for (token, owner, bytes) in [
        (uuid, None, 0),
        (uuid, Some(&text[..21]), 32),
        (&text[..16], None, 0),
        (&text[..16], Some(&text[..21]), 32),
        (&text[..17], None, 32),
        (&text[..17], Some(&text[..4]), 32),
        (&text[..22], None, 32 + 32),
        (uuid, Some(&text[..]), 32 + 160),
    ] {
        let hold = Hold::new(&grant(token, owner));
        assert_eq!(hold.heap_bytes(), bytes, "{} {owner:?}", token.len());
    }
}

/// A hold that takes more than it needs is right all the same, so nothing else shows it.
#[test]
fn numbers_that_fit_take_no_heap() {
    let uuid = b"8f14e45f-ceea-467f-a8f5-6d1e2c3b4a59".as_slice();
    let ahead = Grant {
        claim: Claim::Exclusive,
        granted: UnixMs(6_000),
        ..grant(uuid, None)
    };
    let mut hold = Hold::new(&ahead);
    assert_eq!(hold.heap_bytes(), 0, "the fence is a second ahead");
    hold.bind(ClientId(1 << 33), false);
    assert_eq!(hold.heap_bytes(), 0, "a client of more than 32 bits");
    let entry = heap::tree_share(size_of::<(ClientId, Fence)>() + size_of::<StateId>());
    hold.bind(ClientId(1 << 33), true);
    assert_eq!(hold.heap_bytes(), entry, "EPHEMERAL");
    hold.bind(ClientId(1), false);
    hold.set_unheard(5);
    assert!(hold.heap_bytes() > 0, "not heard of");
    hold.renew(hold.lease, hold.deadline());
    assert_eq!(hold.heap_bytes(), 0, "heard of");
}
