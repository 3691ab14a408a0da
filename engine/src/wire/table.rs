//! Every change with its number and its fields, in the order of the bytes. Reader and writer are made of one table, and the
//! samples with which tests read, write and bend every change.

use std::fmt;

use super::fields::{Fields, Name, Read, Writer};
use super::forms::{
    COUNT, Early, FENCE, Flagged, Form, How, LEASE, LIMIT, MOMENT, PINNED, Secret, Text, Why,
};
use super::grants::{PlaceForm, options_of, write_grant};
#[cfg(test)]
use super::samples::{self, Part, SAMPLES, Sample, Sampled};
use super::unreadable::{NEWEST, Unreadable, VERSION};
use crate::change::{
    Change, ChangeView, Completion, Displaced, End, FinishedRound, Limits, Record, Tally,
};
use crate::hold::GrantView;
use crate::types::Family;

/// `number version VERB { field: form, ... } => variant of Change` for each change but GRANT, whose number has flags. A
/// row with a condition stands before the one for all others of its variant. A field whose type is an `Option` is written
/// as an option of its form.
macro_rules! changes {
    ($(
        $kind:literal $version:literal $verb:ident { $($field:ident: $form:expr),* } => $variant:ident $of:tt
        $(if $guard:expr)?;
    )*) => {
        const _: () = assert!($($version <= NEWEST)&&*);

        /// Reads the fields of one change that is no GRANT. Checks every field; a change that this code would not have
        /// written is refused.
        pub(super) fn read(kind: u8, fields: &mut Fields<'_>) -> Read<Change> {
            match kind {
                $($kind => {
                    fields.verb = stringify!($verb);
                    $(let $field = $form.read(fields, stringify!($field))?;)*
                    Ok(Change::$variant $of)
                })*
                _ => Err(Unreadable::Kind(kind)),
            }
        }

        impl Writer<'_> {
            pub(crate) fn view(&mut self, change: &ChangeView<'_>) {
                match change {
                    ChangeView::Grant(grant) => write_grant(self, grant),
                    ChangeView::Other(change) => self.change(change),
                }
            }

            pub(crate) fn change(&mut self, change: &Change) {
                match change {
                    Change::Grant(grant) => write_grant(self, &grant.into()),
                    $(Change::$variant $of $(if $guard)? => {
                        self.byte($kind);
                        $($form.write(self, $field);)*
                    })*
                }
            }
        }

        #[allow(unused_variables, reason = "only some rows have a condition")]
        impl Change {
            /// Returns the name of the change in logs and in packed strings.
            pub(crate) fn verb(&self) -> &'static str {
                match self {
                    Change::Grant(_) => "GRANT",
                    $(Change::$variant $of $(if $guard)? => stringify!($verb),)*
                }
            }

            /// Returns the version of the strings that carry the change.
            pub fn version(&self) -> u8 {
                match self {
                    Change::Grant(grant) => GrantView::from(grant).version(),
                    Change::End { how: End::Rested, .. } => 5,
                    $(Change::$variant $of $(if $guard)? => $version,)*
                }
            }
        }

        /// Returns samples of each change but GRANT, as far as keys of the family can have it.
        #[cfg(test)]
        #[allow(unused_variables, reason = "some changes have no fields")]
        pub(crate) fn samples(family: Family) -> impl Iterator<Item = Sample> {
            let rows: &[fn(Family, usize) -> Option<Sample>] = &[$(|family, n| {
                $(let $field = $form.sample(family, n)?;)*
                let parts: &[Part] = &[$($form.part(&$field, family)),*];
                let malformed = samples::malformed(parts).into_iter();
                let malformed = malformed.map(|fields| [&[$kind][..], &fields].concat());
                Some(Sample { change: Change::$variant $of, malformed: malformed.collect() })
            }),*];
            rows.iter().flat_map(move |row| (0..SAMPLES).filter_map(move |n| row(family, n)))
        }
    };
}

changes! {
    1 2 RENEW { fence: FENCE, lease: LEASE, deadline: MOMENT } => Renew { fence, lease, deadline };
    2 2 END { fence: FENCE, how: How, at: MOMENT } => End { fence, how, at };
    3 2 LIMIT { limit: LIMIT } => Limit(limit);
    4 2 PIN { limit: PINNED } => Pin(limit);
    5 2 EXPECT { jobs: LIMIT, at: MOMENT } => Expect { jobs, at };
    6 2 FINISH { keep_until: MOMENT } => Finish { keep_until };
    7 2 VANISH {} => Vanish {};
    8 2 LIMITS { limits: LimitsForm } => Limits(limits);
    9 2 TALLY { tally: TallyForm } => Tally(tally);
    10 2 FAIL { fence: FENCE, at: MOMENT, reason: Text } => Fail { fence, at, reason };
    11 2 COMPLETE { fence: FENCE, done: CompletionForm } => Complete { fence, done };
    12 2 GIVEUP {} => GiveUp {};
    13 2 RECORD { record: RecordForm } => Record(record);
    14 3 DELAY { until: MOMENT } => Delay { until };
    15 3 PAUSE { until: MOMENT } => Pause { until };
    16 3 UNHEARD { fence: FENCE, keep_ms: LEASE } => Unheard { fence, keep_ms };
    20 5 PLACE { place: PlaceForm { has_options: true } } => Place(place) if options_of(place) != 0;
    17 3 PLACE { place: PlaceForm { has_options: false } } => Place(place);
    18 3 LEAVE { fence: FENCE } => Leave { rank: fence };
    19 4 DISPLACED { displaced: DisplacedForm } => Displaced(displaced);
    21 5 REST { fence: FENCE, how: Early, at: MOMENT } => Rest { fence, how, at };
}

impl GrantView<'_> {
    fn version(&self) -> u8 {
        if self.has_options() { 5 } else { VERSION }
    }
}

impl ChangeView<'_> {
    /// See [`Change::version`].
    pub(crate) fn version(&self) -> u8 {
        match self {
            ChangeView::Grant(grant) => grant.version(),
            ChangeView::Other(change) => change.version(),
        }
    }
}

/// For the server's log: the verb and the fence or rank only, because tokens are secret, and results and reasons may be
/// long.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.verb())?;
        match self.number() {
            Some(number) => write!(f, " {}", number.0),
            None => Ok(()),
        }
    }
}

/// The form of a struct: `field "name in error messages": form`, in the order of the bytes. Messages of later versions
/// keep the names that they had.
macro_rules! form_of {
    ($type:ident by $name:ident { $($field:ident $label:literal: $form:expr,)* }) => {
        struct $name;

        impl Form<$type> for $name {
            fn read(&self, fields: &mut Fields<'_>, _: Name) -> Read<$type> {
                Ok($type { $($field: $form.read(fields, $label)?,)* })
            }

            fn write(&self, writer: &mut Writer<'_>, value: &$type) {
                $($form.write(writer, &value.$field);)*
            }
        }

        #[cfg(test)]
        impl Sampled<$type> for $name {
            fn sample(&self, family: Family, n: usize) -> Option<$type> {
                Some($type { $($field: $form.sample(family, n)?,)* })
            }

            fn refused(&self, family: Family) -> Vec<Vec<u8>> {
                let parts = self.sample(family, 0).map(|value: $type| {
                    [$($form.part(&value.$field, family)),*]
                });
                parts.map_or_else(Vec::new, |parts| samples::malformed(&parts))
            }
        }
    };
}

form_of!(Limits by LimitsForm {
    limit "limit": LIMIT,
    pinned "pinned": PINNED,
    changes "changes": COUNT,
});

form_of!(Tally by TallyForm {
    limit "limit": LIMIT,
    limit_changes "changes": COUNT,
    expected "expected": LIMIT,
    done "done": COUNT,
    lapsed "lost": COUNT,
    touched "touched": MOMENT,
    finished "keep_until": MOMENT,
});

form_of!(FinishedRound by RoundForm {
    expected "expected": LIMIT,
    done "done": COUNT,
    lapsed "lost": COUNT,
    keep_until "keep_until": MOMENT,
});

form_of!(Completion by CompletionForm {
    keep_until "keep_until": MOMENT,
    token "token": Secret,
    result "result": Text,
});

form_of!(Record by RecordForm {
    attempts "attempts": COUNT,
    touched "touched": MOMENT,
    reason "reason": Why,
    late "late": Flagged(Secret),
    done "completion": Flagged(CompletionForm),
});

/// What only one family can have displaced.
struct DisplacedForm;

impl Form<Displaced> for DisplacedForm {
    fn read(&self, fields: &mut Fields<'_>, _: Name) -> Read<Displaced> {
        match fields.family {
            Family::Lock | Family::Semaphore => Err(fields.error("family")),
            Family::Once => Secret.read(fields, "token").map(Displaced::Late),
            Family::Group => RoundForm.read(fields, "").map(Displaced::Round),
        }
    }

    fn write(&self, writer: &mut Writer<'_>, displaced: &Displaced) {
        match displaced {
            Displaced::Late(token) => Secret.write(writer, token),
            Displaced::Round(round) => RoundForm.write(writer, round),
        }
    }
}

#[cfg(test)]
impl Sampled<Displaced> for DisplacedForm {
    fn sample(&self, family: Family, n: usize) -> Option<Displaced> {
        match family {
            Family::Lock | Family::Semaphore => None,
            Family::Once => Secret.sample(family, n).map(Displaced::Late),
            Family::Group => RoundForm.sample(family, n).map(Displaced::Round),
        }
    }

    fn refused(&self, family: Family) -> Vec<Vec<u8>> {
        match family {
            Family::Lock | Family::Semaphore => Vec::new(),
            Family::Once => Secret.refused(family),
            Family::Group => RoundForm.refused(family),
        }
    }
}
