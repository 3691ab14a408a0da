//! Saved states and kept places: what is read is what was written, and nothing else is read.

use std::collections::BTreeSet;

use super::*;
use crate::change::{Displaced, FinishedRound, Limits, Tally};
use crate::hold::{Grant, Rest};
use crate::short_bytes::LaneName;
use crate::state::families::once::{Completion, Reason, Record};
use crate::store::tests::XorShift;
use crate::types::{Claim, LeaseMs, MAX_PERMITS, MAX_RESULT_LEN, Rank, Token, UnixMs};
use crate::wire::Sample;

fn strings(body: &Body) -> Vec<Vec<u8>> {
    strings_with(body, &[])
}

fn strings_with(body: &Body, places: &[KeptPlace]) -> Vec<Vec<u8>> {
    let mut strings = Vec::new();
    pack(body, places.iter().cloned(), |packed| {
        strings.push(packed.to_vec());
    });
    strings
}

fn load(family: Family, strings: &[Vec<u8>]) -> Result<Body, Unsound> {
    load_with_places(family, strings).map(|loaded| loaded.body)
}

fn load_with_places(family: Family, strings: &[Vec<u8>]) -> Result<Loaded, Unsound> {
    let mut assembly = Assembly::new(family);
    let mut more = true;
    for packed in strings {
        assert!(more, "a string behind the last");
        more = assembly.add(packed)?;
    }
    if more {
        return Err(Unsound::Incomplete);
    }
    assembly.finish()
}

/// The strings of these changes, in their order: a reader meets those of each version in strings of their own.
fn all_packed(family: Family, changes: &[Change]) -> Vec<Vec<u8>> {
    let mut slices: Vec<_> = wire::by_version(changes).collect();
    if slices.is_empty() {
        slices.push(&[]);
    }
    let last = slices.len() - 1;
    let strings = slices.into_iter().enumerate().map(|(n, slice)| {
        let mut buffer = Vec::new();
        wire::pack(&mut buffer, family, n < last, slice);
        buffer
    });
    strings.collect()
}

fn grant(fence: u64, claim: Claim) -> Change {
    Change::Grant(Grant {
        fence: Fence(fence),
        token: Token::parse(format!("token {fence}").as_bytes()).expect("legal"),
        claim,
        index: (claim == Claim::Indexed).then_some(fence as u32),
        rest: Rest::None,
        lease: LeaseMs(5),
        deadline: UnixMs(6),
        granted: UnixMs(7),
        renewed: true,
        owner: Some(b"o".as_slice().into()),
        lane: LaneName::default(),
    })
}

fn tally(finished: Option<UnixMs>) -> Change {
    Change::Tally(Tally {
        limit: Some(1),
        limit_changes: 2,
        expected: None,
        done: u64::MAX,
        lapsed: 4,
        touched: UnixMs(5),
        finished,
    })
}

fn limits() -> Change {
    Change::Limits(Limits {
        limit: None,
        pinned: Some(0),
        changes: 9,
    })
}

fn record(reason: Option<Reason>, result: Option<Option<&[u8]>>) -> Change {
    Change::Record(Record {
        attempts: 3,
        reason,
        late: result
            .is_none()
            .then(|| Token::parse(b"late").expect("legal")),
        done: result.map(|result| Completion {
            token: Token::parse(b"winner").expect("legal"),
            result: result.map(Into::into),
            keep_until: UnixMs(9),
        }),
        touched: UnixMs(4),
    })
}

/// The record of a key that has a run.
fn running(reason: Option<Reason>) -> Change {
    Change::Record(Record {
        attempts: 3,
        reason,
        late: None,
        done: None,
        touched: UnixMs(4),
    })
}

fn place(number: u64, claim: Claim) -> KeptPlace {
    KeptPlace {
        rank: Rank(Fence(number)),
        token: Token::parse(format!("place {number}").as_bytes()).expect("legal"),
        claim,
        lease: LeaseMs(5),
        min_hold: None,
        keep_ms: 6,
        bound: (claim == Claim::Run).then_some(7),
        owner: None,
        lane: LaneName::default(),
        since: UnixMs(8),
    }
}

fn unheard(fence: u64) -> Change {
    let fence = Fence(fence);
    Change::Unheard { fence, keep_ms: 6 }
}

fn displaced_late() -> Change {
    let token = Token::parse(b"late").expect("legal");
    Change::Displaced(Displaced::Late(token))
}

fn displaced_round() -> Change {
    Change::Displaced(Displaced::Round(FinishedRound {
        expected: Some(3),
        done: 2,
        lapsed: 1,
        keep_until: UnixMs(9),
    }))
}

/// The tally of a round in which members were added, and nothing else has happened.
fn new_round() -> Change {
    Change::Tally(Tally {
        limit: Some(1),
        limit_changes: 2,
        expected: None,
        done: 0,
        lapsed: 0,
        touched: UnixMs(5),
        finished: None,
    })
}

fn delay(until: u64) -> Change {
    let until = Some(UnixMs(until));
    Change::Delay { until }
}

fn pause(until: u64) -> Change {
    let until = Some(UnixMs(until));
    Change::Pause { until }
}

/// Returns the grants of one hold that rests and of one that will, both of token 1.
fn resting(claim: Claim) -> [Change; 3] {
    let with_min_hold = |fence| {
        let Change::Grant(grant) = grant(fence, claim) else {
            panic!("a grant")
        };
        Change::Grant(Grant {
            token: Token::parse(b"token 1").expect("legal"),
            rest: Rest::After(LeaseMs(9)),
            ..grant
        })
    };
    let end = Change::Rest {
        fence: Fence(1),
        how: crate::change::End::Released,
        at: UnixMs(8),
    };
    [with_min_hold(1), end, with_min_hold(2)]
}

fn made_of(family: Family, changes: impl IntoIterator<Item = Change>) -> Body {
    let mut body = Body::new(family);
    for change in changes {
        body.apply(&change).expect("fits");
    }
    body
}

fn bodies() -> Vec<Body> {
    let given = |len| Some(Reason::Given(vec![b'r'; len].into()));
    let permits = |n| grant(n, Claim::Permits(MAX_PERMITS));
    let indexed = |n| grant(n, Claim::Indexed);
    let laned = |n, lane: &[u8]| match grant(n, Claim::Permits(2)) {
        Change::Grant(mut grant) => {
            grant.lane = lane.into();
            Change::Grant(grant)
        }
        change => change,
    };
    let longest = vec![b'r'; MAX_RESULT_LEN];
    vec![
        made_of(Family::Lock, []),
        made_of(Family::Lock, [grant(1, Claim::Exclusive)]),
        made_of(
            Family::Lock,
            [grant(1, Claim::Shared), grant(9, Claim::Shared)],
        ),
        made_of(Family::Semaphore, [limits(), permits(3)]),
        made_of(
            Family::Semaphore,
            [limits()].into_iter().chain((1..=127).map(permits)),
        ),
        made_of(
            Family::Semaphore,
            [limits()].into_iter().chain((1..=128).map(permits)),
        ),
        made_of(
            Family::Semaphore,
            [limits(), permits(1), indexed(2), indexed(9), permits(10)],
        ),
        made_of(Family::Lock, resting(Claim::Shared)),
        made_of(
            Family::Semaphore,
            [limits()].into_iter().chain(resting(Claim::Indexed)),
        ),
        made_of(
            Family::Semaphore,
            [
                limits(),
                laned(1, b"l"),
                permits(2),
                laned(3, b"m"),
                laned(4, b"l"),
            ],
        ),
        made_of(Family::Semaphore, [limits(), laned(1, &[b'l'; 128])]),
        made_of(Family::Group, [grant(2, Claim::Member), tally(None)]),
        made_of(
            Family::Group,
            (1..=1_000)
                .map(|n| grant(n, Claim::Member))
                .chain([tally(None)]),
        ),
        made_of(Family::Group, [tally(Some(UnixMs(1)))]),
        made_of(
            Family::Once,
            [grant(4, Claim::Run), running(Some(Reason::Lapsed))],
        ),
        made_of(Family::Once, [record(Some(Reason::Lapsed), None)]),
        made_of(Family::Once, [running(None), delay(9)]),
        made_of(Family::Once, [running(None), delay(9), pause(0)]),
        made_of(Family::Once, [record(None, Some(None))]),
        made_of(Family::Once, [record(given(9), Some(Some(b"r")))]),
        made_of(
            Family::Once,
            [record(given(MAX_RESULT_LEN), Some(Some(&longest)))],
        ),
    ]
}

/// Returns a key of each family, without a hold and with one, after each change of the table that fits it: whatever such a
/// change leaves is saved.
fn bodies_after_each_change() -> Vec<Body> {
    let claims = [
        Claim::Exclusive,
        Claim::Permits(1),
        Claim::Member,
        Claim::Run,
    ];
    let (mut all, mut seen) = (Vec::new(), BTreeSet::new());
    for claim in claims {
        let family = claim.family();
        for before in [Body::new(family), made_of(family, [grant(1, claim)])] {
            for Sample { change, .. } in wire::samples(family) {
                let mut body = before.clone();
                if body.apply(&change).is_ok() && seen.insert(strings(&body)) {
                    all.push(body);
                }
            }
        }
    }
    all
}

#[test]
fn state_is_loaded_as_it_was_saved() {
    for body in bodies().into_iter().chain(bodies_after_each_change()) {
        let saved = strings(&body);
        assert!(
            saved.iter().all(|packed| packed.len() <= wire::MAX_LEN),
            "readers take strings up to the bound"
        );
        let loaded = load(body.family(), &saved).expect("well-formed");
        loaded.check_invariants();
        assert_eq!(strings(&loaded), saved, "{:?}", body.family());
    }
}

#[test]
fn saved_state_is_split_after_128_changes_and_between_versions() {
    let lengths: Vec<_> = bodies().iter().map(|body| strings(body).len()).collect();
    let plain = [1, 1, 1, 1, 1, 2, 3, 1, 2, 4, 2, 1, 8, 1, 1, 1];
    let with_later = [2, 2];
    assert_eq!(lengths, [&plain[..], &with_later, &[1, 1, 1]].concat());
}

#[test]
fn saved_places_and_unheard_holds_are_loaded_as_they_were_saved() {
    let (shared, permit) = (Claim::Shared, Claim::Permits(2));
    let bodies = [
        (made_of(Family::Lock, []), Claim::Exclusive),
        (
            made_of(
                Family::Lock,
                [grant(1, shared), grant(2, shared), unheard(2)],
            ),
            shared,
        ),
        (
            made_of(Family::Semaphore, [limits(), grant(3, permit), unheard(3)]),
            permit,
        ),
        (made_of(Family::Semaphore, [limits()]), Claim::Indexed),
        (made_of(Family::Group, [tally(None)]), Claim::Member),
        (made_of(Family::Once, [running(None), delay(9)]), Claim::Run),
    ];
    for (body, claim) in bodies {
        for count in [0, 1, 127, 128, 300] {
            let places: Vec<_> = (1..=count).map(|n| place(10 * n, claim)).collect();
            let saved = strings_with(&body, &places);
            assert!(saved.iter().all(|packed| packed.len() <= wire::MAX_LEN));
            let loaded = load_with_places(body.family(), &saved).expect("well-formed");
            assert_eq!(loaded.places, places, "{:?}", body.family());
            assert_eq!(strings_with(&loaded.body, &places), saved);
            let cut = load(body.family(), &saved[..saved.len() - 1]);
            assert!(
                cut.is_err(),
                "{:?}: the last string is missing",
                body.family()
            );
        }
    }
}

#[test]
fn saved_state_without_its_last_string_is_refused() {
    for body in bodies().into_iter().chain(bodies_after_each_change()) {
        let saved = strings(&body);
        let loaded = load(body.family(), &saved[..saved.len() - 1]);
        assert!(loaded.is_err(), "{:?}", body.family());
    }
}

#[test]
fn saved_state_with_wrong_change_or_order_is_refused() {
    let shared = |fence| grant(fence, Claim::Shared);
    let member = |fence| grant(fence, Claim::Member);
    let permit = |fence| grant(fence, Claim::Permits(1));
    let run = |fence| grant(fence, Claim::Run);
    let place_of = |number| Change::Place(place(number, Claim::Exclusive));
    let same_token = Change::Place(KeptPlace {
        rank: Rank(Fence(4)),
        ..place(3, Claim::Exclusive)
    });
    let end = Change::End {
        fence: Fence(1),
        how: crate::change::End::Released,
        at: UnixMs(1),
    };
    let alone = grant(2, Claim::Exclusive);
    let done = record(None, Some(None));
    let late = record(None, None);
    let open = running(None);
    let finished = tally(Some(UnixMs(1)));
    let refused = [
        (Family::Lock, vec![shared(2), shared(2)], "a fence twice"),
        (Family::Lock, vec![shared(2), shared(1)], "falling fences"),
        (Family::Lock, vec![shared(1), alone.clone()], "not alone"),
        (Family::Lock, vec![alone, shared(3)], "beside an exclusive"),
        (Family::Lock, vec![shared(1), end], "an end"),
        (Family::Lock, vec![Change::Vanish], "a vanishing"),
        (Family::Lock, vec![limits()], "limits of a lock"),
        (Family::Semaphore, vec![], "no limits"),
        (Family::Semaphore, vec![permit(1)], "no limits at all"),
        (Family::Semaphore, vec![permit(1), limits()], "limits late"),
        (Family::Semaphore, vec![limits(), limits()], "limits twice"),
        (Family::Group, vec![member(1)], "no tally"),
        (Family::Group, vec![tally(None), member(1)], "tally early"),
        (Family::Group, vec![finished.clone(), member(1)], "over"),
        (
            Family::Group,
            vec![member(1), finished],
            "over with members",
        ),
        (Family::Once, vec![run(1)], "no record"),
        (Family::Once, vec![run(1), run(2), open.clone()], "two runs"),
        (Family::Once, vec![run(1), done.clone()], "done with a run"),
        (Family::Once, vec![run(1), late], "late with a run"),
        (Family::Once, vec![done, run(1)], "a run when done"),
        (
            Family::Once,
            vec![open.clone(), open.clone()],
            "two records",
        ),
        (Family::Lock, vec![unheard(1)], "no hold is unheard"),
        (
            Family::Lock,
            vec![shared(1), shared(2), unheard(2), unheard(1)],
            "falling unheard fences",
        ),
        (
            Family::Lock,
            vec![shared(1), unheard(1), shared(2)],
            "a hold behind an unheard one",
        ),
        (
            Family::Lock,
            vec![place_of(3), shared(4)],
            "a hold behind a place",
        ),
        (
            Family::Lock,
            vec![shared(1), place_of(3), unheard(1)],
            "an unheard hold behind a place",
        ),
        (
            Family::Lock,
            vec![place_of(3), place_of(2)],
            "falling numbers",
        ),
        (Family::Lock, vec![place_of(3), same_token], "a token twice"),
        (
            Family::Semaphore,
            vec![Change::Place(place(3, Claim::Permits(1)))],
            "a place and no limits",
        ),
        (
            Family::Lock,
            vec![
                place_of(3),
                Change::Leave {
                    rank: Rank(Fence(3)),
                },
            ],
            "a place that leaves",
        ),
    ];
    for (family, changes, what) in refused {
        let loaded = load(family, &all_packed(family, &changes));
        assert!(loaded.is_err(), "{family:?}: {what}");
    }
}

/// Returns the change without the moment of the last change, which a delay that lasts longer puts off.
fn without_touched(change: Change) -> Change {
    match change {
        Change::Record(record) => Change::Record(Record {
            touched: UnixMs(0),
            ..record
        }),
        change => change,
    }
}

/// A state has one form: each part stands once, at its place, and nothing else stands there. So a reader refuses the
/// changes if one is missing, moved, or added, or they are what it would write itself.
#[test]
fn saved_changes_in_any_other_form_are_refused() {
    for body in bodies_after_each_change() {
        let family = body.family();
        let saved: Vec<_> = body.as_changes().collect();
        let mut others = Vec::new();
        for at in 0..saved.len() {
            let mut without = saved.clone();
            let change = without.remove(at);
            for to in (0..saved.len()).filter(|to| *to != at) {
                let mut moved = without.clone();
                moved.insert(to, change.clone());
                others.push(moved);
            }
            others.push(without);
        }
        for at in 0..=saved.len() {
            let samples = wire::samples(family).map(|sample| sample.change);
            for change in samples.chain(saved.iter().cloned()) {
                let mut more = saved.clone();
                more.insert(at, change);
                others.push(more);
            }
        }
        for changes in others {
            if let Ok(loaded) = load_with_places(family, &all_packed(family, &changes)) {
                let places = loaded.places.into_iter().map(Change::Place);
                let written = loaded.body.as_changes().chain(places);
                let written: Vec<_> = written.map(without_touched).collect();
                let read: Vec<_> = changes.into_iter().map(without_touched).collect();
                assert_eq!(written, read, "{family:?}");
            }
        }
    }
}

#[test]
fn saved_delay_beside_run_late_token_or_result_is_refused() {
    let load_all = |family, changes: &[Change]| load(family, &all_packed(family, changes));
    let over = Change::Delay { until: None };
    let cases = [
        (Family::Once, vec![running(None), delay(9)], true),
        (Family::Once, vec![running(None), over], false),
        (Family::Once, vec![running(None), delay(9), delay(9)], false),
        (Family::Once, vec![delay(9), running(None)], false),
        (Family::Once, vec![record(None, None), delay(9)], false),
        (
            Family::Once,
            vec![record(None, Some(None)), delay(9)],
            false,
        ),
        (
            Family::Once,
            vec![grant(4, Claim::Run), running(None), delay(9)],
            false,
        ),
        (Family::Group, vec![tally(None), delay(9)], false),
    ];
    for (family, changes, sound) in cases {
        let loaded = load_all(family, &changes);
        assert_eq!(loaded.is_ok(), sound, "{family:?}: {changes:?}");
    }
}

/// What a hold displaced is saved as long as no hold of the key was heard of, and is loaded as it was saved.
#[test]
fn saved_displaced_parts_are_loaded_as_they_were_saved() {
    let (run, record) = (grant(4, Claim::Run), running(Some(Reason::Lapsed)));
    let member = |fence| grant(fence, Claim::Member);
    let runs = [run, record, pause(8), unheard(4), displaced_late()];
    let members = [
        member(1),
        member(2),
        new_round(),
        unheard(1),
        unheard(2),
        displaced_round(),
    ];
    for (family, changes, claim) in [
        (Family::Once, &runs[..], Claim::Run),
        (Family::Group, &members[..], Claim::Member),
    ] {
        let body = made_of(family, changes.iter().cloned());
        assert_eq!(body.as_changes().collect::<Vec<_>>(), changes);
        for places in [vec![], vec![place(9, claim)]] {
            let saved = strings_with(&body, &places);
            let loaded = load_with_places(family, &saved).expect("well-formed");
            loaded.body.check_invariants();
            assert_eq!(loaded.places, places);
            assert_eq!(strings_with(&loaded.body, &places), saved, "{family:?}");
        }
    }
}

#[test]
fn saved_displaced_part_out_of_place_is_refused() {
    let run = || grant(4, Claim::Run);
    let member = |fence| grant(fence, Claim::Member);
    let (open, late, round) = (running(None), displaced_late(), displaced_round());
    let place_of = |claim| Change::Place(place(9, claim));
    let refused = [
        (Family::Once, vec![open.clone(), late.clone()], "no run"),
        (
            Family::Once,
            vec![run(), open.clone(), late.clone()],
            "a run that was heard of",
        ),
        (
            Family::Once,
            vec![run(), late.clone(), open.clone(), unheard(4)],
            "before the record",
        ),
        (
            Family::Once,
            vec![run(), open.clone(), late.clone(), unheard(4)],
            "before the unheard run",
        ),
        (
            Family::Once,
            vec![run(), open.clone(), unheard(4), late.clone(), late.clone()],
            "twice",
        ),
        (
            Family::Once,
            vec![run(), open.clone(), unheard(4), place_of(Claim::Run), late],
            "behind a place",
        ),
        (
            Family::Once,
            vec![run(), open, unheard(4), round.clone()],
            "a round of a run",
        ),
        (Family::Group, vec![new_round(), round.clone()], "no member"),
        (
            Family::Group,
            vec![member(1), member(2), new_round(), unheard(1), round.clone()],
            "a member that was heard of",
        ),
        (
            Family::Group,
            vec![
                member(1),
                member(2),
                new_round(),
                unheard(1),
                round.clone(),
                unheard(2),
            ],
            "before an unheard member",
        ),
        (
            Family::Group,
            vec![member(1), tally(None), unheard(1), round],
            "members have ended in the new round",
        ),
        (
            Family::Group,
            vec![member(1), new_round(), unheard(1), displaced_late()],
            "a token of a member",
        ),
    ];
    for (family, changes, what) in refused {
        let loaded = load(family, &all_packed(family, &changes));
        assert!(loaded.is_err(), "{family:?}: {what}");
    }
}

#[test]
fn saved_state_of_another_family_is_refused() {
    let saved = strings(&bodies()[1]);
    let mut assembly = Assembly::new(Family::Once);
    assert_eq!(assembly.add(&saved[0]), Err(Unsound::Family));
}

/// What [`Assembly`] does, with each grant applied by itself.
fn load_one_by_one(family: Family, strings: &[Vec<u8>]) -> Result<Loaded, Unsound> {
    let mut loaded = Assembly::new(family);
    let mut more = true;
    for packed in strings {
        let changes = wire::open(packed)?;
        if changes.family != family {
            return Err(Unsound::Family);
        }
        more = changes.more;
        for change in changes {
            let change = change?;
            let verb = change.verb();
            let number = change.number().unwrap_or_default();
            loaded.go_on(Part::of(&change), number, verb)?;
            let misfit = |misfit| Unsound::Misfit { verb, misfit };
            loaded.body.apply(&change).map_err(misfit)?;
            if let Change::Place(place) = change {
                if loaded.places.iter().any(|other| other.token == place.token) {
                    return Err(misfit(Misfit::PlaceTaken));
                }
                loaded.places.push(place);
            }
        }
    }
    match more {
        true => Err(Unsound::Incomplete),
        false => loaded.finish(),
    }
}

/// The changes of a saved state with `holds` holds, and then up to two defects.
fn random_changes(random: &mut XorShift, family: Family, holds: u64) -> Vec<Change> {
    let claim = |random: &mut XorShift| match family {
        Family::Lock if random.below(9) == 0 => Claim::Exclusive,
        Family::Lock => Claim::Shared,
        Family::Semaphore if random.below(2) == 0 => Claim::Indexed,
        Family::Semaphore => Claim::Permits(1 + random.below(5) as u32),
        Family::Group => Claim::Member,
        Family::Once => Claim::Run,
    };
    let mut changes: Vec<Change> = (1..=holds).map(|n| grant(n, claim(random))).collect();
    match family {
        Family::Lock => {}
        Family::Semaphore => changes.insert(0, limits()),
        Family::Group => changes.push(new_round()),
        Family::Once => changes.push(running(None)),
    }
    if random.below(3) == 0 {
        let samples: Vec<_> = wire::samples(family).collect();
        let nth = random.below(samples.len() as u64) as usize;
        changes.push(samples[nth].change.clone());
    }
    if random.below(3) == 0 {
        changes.push(unheard(1 + random.below(holds + 1)));
        changes.push(displaced_round());
    }
    if random.below(3) == 0 {
        let claim = claim(random);
        changes.extend((1..=2).map(|n| Change::Place(place(n, claim))));
    }
    for _ in 0..random.below(3) {
        let at = |random: &mut XorShift| random.below(changes.len().max(1) as u64) as usize;
        let (a, b) = (at(random), at(random));
        match (random.below(4), changes.get(a).cloned(), changes.get_mut(b)) {
            (0, Some(Change::Grant(from)), Some(Change::Grant(to))) => match to.claim {
                Claim::Indexed if from.index.is_some() => to.index = from.index,
                _ => to.token = from.token,
            },
            (1, Some(change), _) => changes.insert(b, change),
            (2, Some(_), _) => drop(changes.remove(a)),
            (3, Some(_), _) => changes.swap(a, b),
            _ => {}
        }
    }
    changes.retain(|change| match change {
        Change::Displaced(_) => family == Family::Group,
        _ => true,
    });
    changes
}

#[test]
fn state_loaded_at_once_is_that_loaded_one_by_one() {
    let mut random = XorShift(0x51ab_1e57_0c0f_fee5);
    let mut seen = std::collections::BTreeMap::<String, usize>::new();
    for _ in 0..6_000 {
        let family = Family::ALL[random.below(4) as usize];
        let holds = match random.below(40) {
            0 => 300,
            _ => random.below(7),
        };
        let changes = random_changes(&mut random, family, holds);
        let mut strings = all_packed(family, &changes);
        if random.below(8) == 0 {
            let last = strings.last_mut().expect("a string");
            let at = random.below(last.len() as u64) as usize;
            last[at] ^= 1 << random.below(8);
        }
        let expected = load_one_by_one(family, &strings);
        let loaded = load_with_places(family, &strings);
        let outcome = match (&loaded, &expected) {
            (Ok(loaded), Ok(expected)) => {
                loaded.body.check_invariants();
                let all = strings_with(&expected.body, &expected.places);
                assert_eq!(
                    strings_with(&loaded.body, &loaded.places),
                    all,
                    "{changes:?}"
                );
                assert_eq!(loaded.body.heap_bytes(), expected.body.heap_bytes());
                format!("{family:?}")
            }
            _ => {
                let (loaded, expected) = (loaded.err(), expected.err());
                assert_eq!(loaded, expected, "{changes:?}");
                format!("{:?}", loaded.expect("refused"))
            }
        };
        *seen.entry(outcome).or_default() += 1;
    }
    let taken = Unsound::Misfit {
        verb: "GRANT",
        misfit: Misfit::Taken,
    };
    for outcome in ["Lock", "Semaphore", "Group", "Once", &format!("{taken:?}")] {
        let count = seen.get(outcome).copied().unwrap_or_default();
        assert!(count > 100, "{outcome} was seen {count} times: {seen:?}");
    }
}
