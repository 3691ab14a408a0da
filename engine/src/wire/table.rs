//! Every change with its number and its fields, in the order of the bytes. Reader and writer are made of one table.

use std::fmt;

use super::fields::{Fields, Name, Read, Writer};
use super::forms::{
    ATTEMPTS, COUNT, Early, FENCE, Flagged, Form, How, INDEX, LEASE, LIMIT, MOMENT, PINNED, Secret,
    Text, Why,
};
use super::unreadable::{NEWEST, Unreadable, VERSION};
use crate::change::{
    Change, Completion, Displaced, End, FinishedRound, KeptPlace, Limits, Record, Tally,
};
use crate::hold::{Grant, Rest};
use crate::short_bytes::LaneName;
use crate::types::{
    Claim, Family, Fence, LeaseMs, MAX_LANE_LEN, MAX_OWNER_LEN, Rank, Token, UnixMs,
};

/// The kind of a GRANT, to which flags are added.
const GRANT: u8 = 0x80;
const RENEWED: u8 = 1;
const OWNED: u8 = 2;
const SHARED: u8 = 4;
/// With an index in place of the permits.
const INDEXED: u8 = 8;
/// With a min-hold.
const MIN_HOLD: u8 = 16;
/// Without deadline and token, because the hold rests.
const RESTS: u8 = 32;
/// With a lane.
const LANED: u8 = 64;
const FLAGS: u8 = RENEWED | OWNED | SHARED | INDEXED | MIN_HOLD | RESTS | LANED;

/// The options of a PLACE, as flags.
mod options {
    pub(super) const INDEXED: u8 = 1;
    pub(super) const MIN_HOLD: u8 = 2;
    pub(super) const LANED: u8 = 4;
    pub(super) const ALL: u8 = INDEXED | MIN_HOLD | LANED;
}

/// `number version VERB { field: form, ... } => variant of Change` for each change but GRANT, whose number has flags. A
/// row with a condition stands before the one for all others of its variant.
macro_rules! changes {
    ($(
        $kind:literal $version:literal $verb:ident { $($field:ident: $form:expr),* } => $variant:ident $of:tt
        $(if $guard:expr)?;
    )*) => {
        const _: () = assert!($($version <= NEWEST)&&*);

        /// Reads the fields of one change. Checks every field; a change that this code would not have written is refused.
        pub(super) fn read(kind: u8, fields: &mut Fields<'_>) -> Read<Change> {
            match kind {
                $($kind => {
                    fields.verb = stringify!($verb);
                    $(let $field = $form.read(fields, stringify!($field))?;)*
                    Ok(Change::$variant $of)
                })*
                _ if kind & !FLAGS == GRANT => {
                    fields.verb = "GRANT";
                    read_grant(kind, fields).map(Change::Grant)
                }
                _ => Err(Unreadable::Kind(kind)),
            }
        }

        impl Writer<'_> {
            pub(crate) fn change(&mut self, change: &Change) {
                match change {
                    Change::Grant(grant) => write_grant(self, grant),
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
                    Change::Grant(grant) if grant.has_options() => 5,
                    Change::Grant(_) => VERSION,
                    Change::End { how: End::Rested, .. } => 5,
                    $(Change::$variant $of $(if $guard)? => $version,)*
                }
            }
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

/// For the server's log: the verb and the fence or rank only, because tokens are secret, and results and reasons may be
/// long.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.verb())?;
        let number = match self {
            Change::Place(place) => Some(place.rank.0),
            Change::Leave { rank } => Some(rank.0),
            _ => self.fence(),
        };
        match number {
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

/// A kept place: first its options, if it has any. Its claim is written by family, but for one with an index.
struct PlaceForm {
    has_options: bool,
}

fn options_of(place: &KeptPlace) -> u8 {
    let flag = |flag: u8, is_set: bool| u8::from(is_set) * flag;
    flag(options::INDEXED, place.claim == Claim::Indexed)
        | flag(options::MIN_HOLD, place.min_hold.is_some())
        | flag(options::LANED, !place.lane.is_nameless())
}

impl Form<KeptPlace> for PlaceForm {
    fn read(&self, fields: &mut Fields<'_>, _: Name) -> Read<KeptPlace> {
        let options = match self.has_options {
            true => fields.number("options", 1, options::ALL.into())? as u8,
            false => 0,
        };
        let has = |option| options & option != 0;
        let min_hold = read_min_hold(has(options::MIN_HOLD), fields)?;
        let (lane, lane_limit) = match has(options::LANED) {
            true => (read_lane(fields)?, LIMIT.read(fields, "lane_limit")?),
            false => Default::default(),
        };
        let family = fields.family;
        let claim = match family {
            Family::Semaphore if has(options::INDEXED) => Claim::Indexed,
            _ if has(options::INDEXED) => return Err(fields.error("claim")),
            Family::Lock if fields.flag("claim")? => Claim::Shared,
            _ => read_claim(fields)?,
        };
        let max_attempts = match claim {
            Claim::Run => ATTEMPTS.read(fields, "max")?,
            _ => None,
        };
        let number: Fence = FENCE.read(fields, "fence")?;
        Ok(KeptPlace {
            rank: Rank(number),
            claim,
            max_attempts,
            since: fields.difference("since", number.unix())?,
            lease: LEASE.read(fields, "lease")?,
            min_hold,
            keep_ms: LEASE.read(fields, "keep_ms")?,
            token: Secret.read(fields, "token")?,
            // No owner has a shorter form than an empty one.
            owner: (fields.optional_text("owner", 1, MAX_OWNER_LEN)?).map(Into::into),
            lane,
            lane_limit,
        })
    }

    fn write(&self, writer: &mut Writer<'_>, place: &KeptPlace) {
        if self.has_options {
            writer.byte(options_of(place));
        }
        if let Some(min_hold) = place.min_hold {
            writer.number(min_hold.0);
        }
        if !place.lane.is_nameless() {
            writer.text(place.lane.as_bytes());
            LIMIT.write(writer, &place.lane_limit);
        }
        match place.claim {
            Claim::Exclusive => writer.byte(0),
            Claim::Shared => writer.byte(1),
            Claim::Permits(permits) => writer.number(permits),
            Claim::Run => ATTEMPTS.write(writer, &place.max_attempts),
            Claim::Indexed | Claim::Member => {}
        }
        writer.number(place.rank.0.0);
        writer.difference(place.since, place.rank.0.unix());
        writer.number(place.lease.0);
        writer.number(place.keep_ms);
        Secret.write(writer, &place.token);
        let owner = place.owner.as_deref();
        writer.optional_text(owner.filter(|owner| !owner.is_empty()));
    }
}

/// Reads the name of a lane. Only semaphores have lanes.
fn read_lane(fields: &mut Fields<'_>) -> Read<LaneName> {
    match fields.family {
        Family::Semaphore => Ok(fields.text("lane", 1, MAX_LANE_LEN)?.into()),
        _ => Err(fields.error("lane")),
    }
}

/// Reads the claim that a family has without a flag.
fn read_claim(fields: &mut Fields<'_>) -> Read<Claim> {
    Ok(match fields.family {
        Family::Lock => Claim::Exclusive,
        Family::Semaphore => Claim::Permits(LIMIT.read(fields, "permits")?),
        Family::Group => Claim::Member,
        Family::Once => Claim::Run,
    })
}

fn read_min_hold(is_there: bool, fields: &mut Fields<'_>) -> Read<Option<LeaseMs>> {
    if is_there && !fields.family.has_rests() {
        return Err(fields.error("min_hold"));
    }
    let min_hold = is_there.then(|| LEASE.read(fields, "min_hold"));
    min_hold.transpose()
}

fn read_grant(kind: u8, fields: &mut Fields<'_>) -> Read<Grant> {
    let flag = |flag| kind & flag != 0;
    let claim = match (fields.family, flag(SHARED), flag(INDEXED)) {
        (Family::Lock, true, false) => Claim::Shared,
        (Family::Semaphore, false, true) => Claim::Indexed,
        (_, false, false) => read_claim(fields)?,
        _ => return Err(fields.error("claim")),
    };
    let index = flag(INDEXED).then(|| INDEX.read(fields, "index"));
    let index = index.transpose()?;
    let fence: Fence = FENCE.read(fields, "fence")?;
    let mut grant = Grant {
        fence,
        claim,
        index,
        granted: fields.difference("granted", fence.unix())?,
        lease: LEASE.read(fields, "lease")?,
        rest: Rest::None,
        deadline: UnixMs(0),
        renewed: flag(RENEWED),
        token: Token::Uuid([0; 16]),
        owner: None,
        lane: LaneName::default(),
    };
    if let Some(min_hold) = read_min_hold(flag(MIN_HOLD), fields)? {
        grant.rest = Rest::After(min_hold);
    }
    if flag(RESTS) {
        if flag(MIN_HOLD) || !fields.family.has_rests() {
            return Err(fields.error("rests"));
        }
        (grant.rest, grant.deadline) = (Rest::Now, lease_end(&grant));
    } else {
        grant.deadline = fields.difference("deadline", lease_end(&grant))?;
        grant.token = Secret.read(fields, "token")?;
    }
    if flag(OWNED) {
        grant.owner = Some(fields.text("owner", 1, MAX_OWNER_LEN)?.into());
    }
    if flag(LANED) {
        grant.lane = read_lane(fields)?;
    }
    Ok(grant)
}

fn write_grant(writer: &mut Writer<'_>, grant: &Grant) {
    let owner = grant.owner.as_deref().filter(|owner| !owner.is_empty());
    let flag = |flag: u8, is_set: bool| u8::from(is_set) * flag;
    let (renewed, owned) = (flag(RENEWED, grant.renewed), flag(OWNED, owner.is_some()));
    let shared = flag(SHARED, grant.claim == Claim::Shared);
    let indexed = flag(INDEXED, grant.index.is_some());
    let rest = match grant.rest {
        Rest::None => 0,
        Rest::After(_) => MIN_HOLD,
        Rest::Now => RESTS,
    };
    let laned = flag(LANED, !grant.lane.is_nameless());
    writer.byte(GRANT | renewed | owned | shared | indexed | rest | laned);
    match (grant.index, grant.claim) {
        (Some(index), _) => writer.number(index),
        (None, Claim::Permits(permits)) => writer.number(permits),
        _ => {}
    }
    writer.number(grant.fence.0);
    writer.difference(grant.granted, grant.fence.unix());
    writer.number(grant.lease.0);
    if let Some(min_hold) = grant.rest.after() {
        writer.number(min_hold.0);
    }
    if grant.rest != Rest::Now {
        writer.difference(grant.deadline, lease_end(grant));
        Secret.write(writer, &grant.token);
    }
    if let Some(owner) = owner {
        writer.text(owner);
    }
    if laned != 0 {
        writer.text(grant.lane.as_bytes());
    }
}

/// Returns when the lease ends if it was never renewed. The deadline is close to it.
fn lease_end(grant: &Grant) -> UnixMs {
    UnixMs(grant.granted.0.saturating_add(u64::from(grant.lease.0)))
}
