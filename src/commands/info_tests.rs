//! The table of INFO's fields as the forms of replies and as sentences, and whether docs/reference.md agrees with it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::info::{Field, Unit, Value, of_hold, of_key, of_waiter};
use super::replies::Form;
use super::row::type_name;
use dsync_engine::Family;
use dsync_engine::change::{Limits, Record, Tally};
use dsync_engine::info::{HoldInfo, Info, KeyWaiters, Particulars, WaiterInfo};
use dsync_engine::types::{Claim, ClientId, Fence, UnixMs};

impl Form {
    /// The form itself, with the fields of INFO in place of its name.
    pub(super) fn whole(&self) -> Form {
        match self {
            Form::Info(family) => with_key(*family, |info| map(&of_key(info))),
            form => *form,
        }
    }
}

/// The sentence on a field, of the key or of one of its holders and waiters.
pub(super) fn meaning(family: Family, name: &str) -> Option<&'static str> {
    let found = rows(family).into_iter().find(|row| row.0 == name);
    found.map(|(_, sentence)| sentence)
}

/// The name and the sentence of each field of a key, its holders and its waiters.
fn rows(family: Family) -> Vec<(&'static str, &'static str)> {
    with_key(family, |info| {
        let holders = info.first_holders.iter().flat_map(of_hold);
        let waiters = info.waiters.first.iter().flat_map(of_waiter);
        let all = of_key(info).into_iter().chain(holders).chain(waiters);
        all.map(|Field(name, _, means)| (name, means)).collect()
    })
}

fn set<'a>(words: impl IntoIterator<Item = &'a str>) -> BTreeSet<&'a str> {
    words.into_iter().collect()
}

/// The words of a text between backquotes.
fn codes(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The chapter shows a lock, and has a table of what other families have besides or instead.
#[test]
fn reference_has_every_field_and_state_of_info() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference.md");
    let page = fs::read_to_string(page).expect("docs/reference.md");
    let mut chapters = page.split("\n## ");
    let chapter = chapters.find(|chapter| chapter.starts_with("INFO\n"));
    let chapter = chapter.expect("a chapter on INFO");
    let shared = set(rows(Family::Lock).iter().map(|row| row.0));
    let shown = chapter
        .lines()
        .filter_map(|line| line.split_once("# \"")?.1.split_once("\" =>"));
    let shown = set(shown.map(|(name, _)| name));
    assert!(shown.is_subset(&shared), "{shown:?}");
    let named = set(codes(chapter).chain(shown));
    assert!(shared.is_subset(&named), "{named:?}");
    for family in Family::ALL {
        let start = format!("| {} |", type_name(family));
        let line = chapter.lines().find(|line| line.starts_with(&start));
        let cells: Vec<_> = line.expect("a line of the table").split('|').collect();
        let rows = rows(family);
        assert!(
            rows.iter().all(|row| row.1.ends_with(['.', ':'])),
            "{rows:?}"
        );
        let of_mode = ["mode", "member", "wait", "run"];
        let named = codes(cells[3]).filter(|code| !of_mode.contains(code));
        let mut own: Vec<_> = rows.iter().map(|row| row.0).collect();
        own.retain(|name| !shared.contains(name));
        own.dedup();
        assert_eq!(named.collect::<Vec<_>>(), own, "{family:?}");
        let states = cells[2].split(['(', ')']).step_by(2);
        let states = states.flat_map(|text| text.split([' ', ',', ';']));
        let states = set(states.filter(|word| !word.is_empty()));
        let means = meaning(family, "state").unwrap_or_default();
        let expected = set(codes(means).filter(|code| *code != "DELAY"));
        assert_eq!(states, expected, "{family:?}");
    }
}

/// Calls the function with a key that has a holder and a waiter.
fn with_key<T>(family: Family, see: impl FnOnce(&Info<'_>) -> T) -> T {
    let (particulars, claim) = match family {
        Family::Lock => (Particulars::Lock, Claim::Exclusive),
        Family::Semaphore => {
            let (limits, available) = (Limits::default(), 0);
            let particulars = Particulars::Semaphore { limits, available };
            (particulars, Claim::Permits(1))
        }
        Family::Group => (Particulars::Group(Tally::default()), Claim::Member),
        Family::Once => {
            let record = Record {
                attempts: 1,
                reason: None,
                late: None,
                done: None,
                touched: UnixMs(0),
            };
            let delay_left_ms = 0;
            let particulars = Particulars::Once {
                record,
                delay_left_ms,
            };
            (particulars, Claim::Run)
        }
    };
    let hold = HoldInfo {
        fence: Fence(1),
        owner: None,
        client: ClientId::NONE,
        claim,
        lease_left_ms: 1,
        held_ms: 1,
    };
    let waiter = WaiterInfo {
        claim: Some(claim),
        ..WaiterInfo::default()
    };
    see(&Info {
        particulars,
        paused_ms: 0,
        holders: 1,
        first_holders: vec![hold],
        waiters: KeyWaiters {
            first: vec![waiter],
            ..KeyWaiters::default()
        },
        knows_waiters: true,
    })
}

fn map(fields: &[Field<'_>]) -> Form {
    let forms = fields.iter().map(|field| (field.0, field.form()));
    Form::Map(forms.collect::<Vec<_>>().leak())
}

impl Field<'_> {
    fn form(&self) -> Form {
        let either = |forms: [Form; 2]| Form::Either(Vec::from(forms).leak());
        let list = |form| Form::List(Box::leak(Box::new(form)));
        match &self.1 {
            // It says which family it is; other words differ from key to key.
            Value::Word(word) if self.0 == "type" => Form::Word(word),
            Value::Word(_) => Form::Bulk,
            Value::Text(_) => either([Form::Bulk, Form::Null]),
            Value::Number(unit, _) => unit.form(),
            Value::OrNull(unit, _) => either([unit.form(), Form::Null]),
            Value::Known(unit, _) => either([unit.form(), Form::Bulk]),
            Value::Holds(holds) => list(map(&of_hold(&holds[0]))),
            Value::Waiters(waiters) => list(map(&of_waiter(&waiters[0]))),
        }
    }
}

impl Unit {
    fn form(self) -> Form {
        match self {
            Unit::Count => Form::Integer,
            Unit::Ms => Form::Ms,
            Unit::Id => Form::Id,
        }
    }
}
