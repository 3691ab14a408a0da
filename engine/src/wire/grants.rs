//! A GRANT and a PLACE, whose fields depend on flags: what was granted, and what is asked for.

use super::fields::{Fields, Name, Read, Writer};
use super::forms::{ATTEMPTS, FENCE, Form, INDEX, LEASE, LIMIT, Secret};
use crate::change::KeptPlace;
use crate::hold::{Grant, GrantView, Rest};
use crate::short_bytes::LaneName;
use crate::types::{
    Claim, Family, Fence, LeaseMs, MAX_LANE_LEN, MAX_OWNER_LEN, Rank, TokenView, UnixMs,
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

/// A kept place: first its options, if it has any. Its claim is written by family, but for one with an index.
pub struct PlaceForm {
    pub has_options: bool,
}

fn flag(flag: u8, is_set: bool) -> u8 {
    u8::from(is_set) * flag
}

/// Returns the options of a place as flags.
pub fn options_of(place: &KeptPlace) -> u8 {
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
        let lane = LaneName::from(read_lane(has(options::LANED), fields)?);
        let mut bound = None;
        if !lane.is_nameless() {
            bound = LIMIT.read(fields, "lane_limit")?;
        }
        let shared = fields.family == Family::Lock && fields.flag("claim")?;
        let claim = read_claim(shared, has(options::INDEXED), fields)?;
        if claim == Claim::Run {
            bound = ATTEMPTS.read(fields, "max")?;
        }
        let number: Fence = FENCE.read(fields, "fence")?;
        Ok(KeptPlace {
            rank: Rank(number),
            claim,
            bound,
            since: fields.difference("since", number.unix())?,
            lease: LEASE.read(fields, "lease")?,
            min_hold,
            keep_ms: LEASE.read(fields, "keep_ms")?,
            token: Secret.read(fields, "token")?,
            // No owner has a shorter form than an empty one.
            owner: (fields.optional_text("owner", 1, MAX_OWNER_LEN)?).map(Into::into),
            lane,
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
            LIMIT.write(writer, &place.bound);
        }
        match place.claim {
            Claim::Exclusive => writer.byte(0),
            Claim::Shared => writer.byte(1),
            Claim::Permits(permits) => writer.number(permits),
            Claim::Run => ATTEMPTS.write(writer, &place.bound),
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
fn read_lane<'a>(is_there: bool, fields: &mut Fields<'a>) -> Read<&'a [u8]> {
    match fields.family {
        _ if !is_there => Ok(&[]),
        Family::Semaphore => fields.text("lane", 1, MAX_LANE_LEN),
        _ => Err(fields.error("lane")),
    }
}

/// Reads the claim of a family, which may say that it is shared, or that it has an index.
fn read_claim(shared: bool, indexed: bool, fields: &mut Fields<'_>) -> Read<Claim> {
    Ok(match (fields.family, shared, indexed) {
        (Family::Lock, true, false) => Claim::Shared,
        (Family::Semaphore, false, true) => Claim::Indexed,
        _ if shared || indexed => return Err(fields.error("claim")),
        (Family::Lock, ..) => Claim::Exclusive,
        (Family::Semaphore, ..) => Claim::Permits(LIMIT.read(fields, "permits")?),
        (Family::Group, ..) => Claim::Member,
        (Family::Once, ..) => Claim::Run,
    })
}

fn read_min_hold(is_there: bool, fields: &mut Fields<'_>) -> Read<Option<LeaseMs>> {
    if is_there && !fields.family.has_rests() {
        return Err(fields.error("min_hold"));
    }
    let min_hold = is_there.then(|| LEASE.read(fields, "min_hold"));
    min_hold.transpose()
}

pub fn is_grant(kind: u8) -> bool {
    kind & !FLAGS == GRANT
}

#[inline]
pub fn read_grant<'a>(kind: u8, fields: &mut Fields<'a>) -> Read<GrantView<'a>> {
    fields.verb = "GRANT";
    let has = |flag| kind & flag != 0;
    let claim = read_claim(has(SHARED), has(INDEXED), fields)?;
    let index = has(INDEXED).then(|| INDEX.read(fields, "index"));
    let index = index.transpose()?;
    let fence: Fence = FENCE.read(fields, "fence")?;
    let granted = fields.difference("granted", fence.unix())?;
    let lease = LEASE.read(fields, "lease")?;
    let rest = match read_min_hold(has(MIN_HOLD), fields)? {
        min_hold if !has(RESTS) => min_hold.map_or(Rest::None, Rest::After),
        None if fields.family.has_rests() => Rest::Now,
        _ => return Err(fields.error("rests")),
    };
    let end = lease_end(granted, lease);
    let (deadline, token) = match rest {
        Rest::Now => (end, TokenView::Uuid([0; 16])),
        Rest::None | Rest::After(_) => {
            let deadline = fields.difference("deadline", end)?;
            (deadline, Secret.view(fields, "token")?)
        }
    };
    let owner = has(OWNED).then(|| fields.text("owner", 1, MAX_OWNER_LEN));
    Ok(Grant {
        fence,
        token,
        claim,
        index,
        lease,
        rest,
        deadline,
        granted,
        renewed: has(RENEWED),
        owner: owner.transpose()?,
        lane: read_lane(has(LANED), fields)?,
    })
}

pub fn write_grant(writer: &mut Writer<'_>, grant: &GrantView<'_>) {
    let owner = grant.owner.filter(|owner| !owner.is_empty());
    let rest = match grant.rest {
        Rest::None => 0,
        Rest::After(_) => MIN_HOLD,
        Rest::Now => RESTS,
    };
    let flags = flag(RENEWED, grant.renewed)
        | flag(OWNED, owner.is_some())
        | flag(SHARED, grant.claim == Claim::Shared)
        | flag(INDEXED, grant.index.is_some())
        | flag(LANED, !grant.lane.is_empty());
    writer.byte(GRANT | rest | flags);
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
        writer.difference(grant.deadline, lease_end(grant.granted, grant.lease));
        Secret.write_view(writer, grant.token);
    }
    if let Some(owner) = owner {
        writer.text(owner);
    }
    if !grant.lane.is_empty() {
        writer.text(grant.lane);
    }
}

/// Returns when the lease ends if it was never renewed. The deadline is close to it.
fn lease_end(granted: UnixMs, lease: LeaseMs) -> UnixMs {
    UnixMs(granted.0.saturating_add(u64::from(lease.0)))
}
