//! Reads one change from a packed string. Checks every field; a change that this code would not have written is
//! refused.

use super::fields::Fields;
use super::{Unreadable, kind, lease_end};
use crate::Family;
use crate::change::{Change, Displaced, FinishedRound, KeptPlace, Limits, Tally};
use crate::families::once::{Completion, Reason, Record};
use crate::hold::Grant;
use crate::types::{Claim, MAX_OWNER_LEN, MAX_PERMITS, MAX_RESULT_LEN, Token, UnixMs};

/// Reads the fields of one change.
pub(super) fn read(
    family: Family,
    kind: u8,
    fields: &mut Fields<'_>,
) -> Result<Change, Unreadable> {
    if kind & kind::GRANT != 0 {
        return read_grant(family, kind, fields);
    }
    Ok(match kind {
        kind::RENEW => {
            fields.verb = "RENEW";
            Change::Renew {
                fence: fields.fence()?,
                lease: fields.lease()?,
                deadline: fields.moment("deadline")?,
            }
        }
        kind::END => {
            fields.verb = "END";
            Change::End {
                fence: fields.fence()?,
                how: fields.how()?,
                at: fields.moment("at")?,
            }
        }
        kind::LIMIT => {
            fields.verb = "LIMIT";
            Change::Limit(fields.u32("limit", 1, MAX_PERMITS)?)
        }
        kind::PIN => {
            fields.verb = "PIN";
            Change::Pin(fields.u32_option("limit", 0, MAX_PERMITS)?)
        }
        kind::EXPECT => {
            fields.verb = "EXPECT";
            Change::Expect {
                jobs: fields.u32("jobs", 1, MAX_PERMITS)?,
                at: fields.moment("at")?,
            }
        }
        kind::FINISH => {
            fields.verb = "FINISH";
            Change::Finish {
                keep_until: fields.moment("keep-until")?,
            }
        }
        kind::VANISH => Change::Vanish,
        kind::LIMITS => {
            fields.verb = "LIMITS";
            Change::Limits(Limits {
                limit: fields.u32_option("limit", 1, MAX_PERMITS)?,
                pinned: fields.u32_option("pinned", 0, MAX_PERMITS)?,
                changes: fields.number("changes", 0, u64::MAX)?,
            })
        }
        kind::TALLY => {
            fields.verb = "TALLY";
            Change::Tally(Tally {
                limit: fields.u32_option("limit", 1, MAX_PERMITS)?,
                limit_changes: fields.number("changes", 0, u64::MAX)?,
                expected: fields.u32_option("expected", 1, MAX_PERMITS)?,
                done: fields.number("done", 0, u64::MAX)?,
                lost: fields.number("lost", 0, u64::MAX)?,
                touched: fields.moment("touched")?,
                finished: fields.moment_option("keep-until")?,
            })
        }
        kind::FAIL => {
            fields.verb = "FAIL";
            Change::Fail {
                fence: fields.fence()?,
                at: fields.moment("at")?,
                reason: fields.text("reason", 0, MAX_RESULT_LEN)?.into(),
            }
        }
        kind::COMPLETE => {
            fields.verb = "COMPLETE";
            Change::Complete {
                fence: fields.fence_option()?,
                done: read_completion(fields)?,
            }
        }
        kind::GIVEUP => Change::GiveUp,
        kind::RECORD => {
            fields.verb = "RECORD";
            Change::Record(read_record(fields)?)
        }
        kind::DELAY => {
            fields.verb = "DELAY";
            Change::Delay {
                until: fields.moment_option("until")?,
            }
        }
        kind::PAUSE => {
            fields.verb = "PAUSE";
            Change::Pause {
                until: fields.moment_option("until")?,
            }
        }
        kind::UNHEARD => {
            fields.verb = "UNHEARD";
            Change::Unheard {
                fence: fields.fence()?,
                keep_ms: fields.keep_ms()?,
            }
        }
        kind::PLACE => {
            fields.verb = "PLACE";
            Change::Place(read_place(family, fields)?)
        }
        kind::LEAVE => {
            fields.verb = "LEAVE";
            Change::Leave {
                number: fields.fence()?,
            }
        }
        kind::DISPLACED => {
            fields.verb = "DISPLACED";
            Change::Displaced(read_displaced(family, fields)?)
        }
        _ => return Err(Unreadable::Kind(kind)),
    })
}

fn read_grant(family: Family, kind: u8, fields: &mut Fields<'_>) -> Result<Change, Unreadable> {
    let flag = |flag| kind & flag != 0;
    if kind & !(kind::GRANT | kind::RENEWED | kind::OWNED | kind::SHARED) != 0 {
        return Err(Unreadable::Kind(kind));
    }
    fields.verb = "GRANT";
    let claim = match family {
        Family::Lock if flag(kind::SHARED) => Claim::Shared,
        _ if flag(kind::SHARED) => return Err(fields.error("claim")),
        Family::Lock => Claim::Exclusive,
        Family::Semaphore => Claim::Permits(fields.u32("permits", 1, MAX_PERMITS)?),
        Family::Group => Claim::Member,
        Family::Once => Claim::Run,
    };
    let fence = fields.fence()?;
    let mut grant = Grant {
        fence,
        claim,
        granted: fields.difference("granted", fence.unix())?,
        lease: fields.lease()?,
        deadline: UnixMs(0),
        renewed: flag(kind::RENEWED),
        token: Token::Uuid([0; 16]),
        owner: None,
    };
    grant.deadline = fields.difference("deadline", lease_end(&grant))?;
    grant.token = fields.token("token")?;
    if flag(kind::OWNED) {
        grant.owner = Some(fields.text("owner", 1, MAX_OWNER_LEN)?.into());
    }
    Ok(Change::Grant(grant))
}

fn read_place(family: Family, fields: &mut Fields<'_>) -> Result<KeptPlace, Unreadable> {
    let mut max_attempts = None;
    let claim = match family {
        Family::Lock if fields.flag("claim")? => Claim::Shared,
        Family::Lock => Claim::Exclusive,
        Family::Semaphore => Claim::Permits(fields.u32("permits", 1, MAX_PERMITS)?),
        Family::Group => Claim::Member,
        Family::Once => {
            max_attempts = fields.u32_option("max", 1, u32::MAX)?;
            Claim::Run
        }
    };
    let number = fields.fence()?;
    let place = KeptPlace {
        number,
        claim,
        max_attempts,
        since: fields.difference("since", number.unix())?,
        lease: fields.lease()?,
        keep_ms: fields.keep_ms()?,
        token: fields.token("token")?,
        owner: fields
            .optional_text("owner", MAX_OWNER_LEN)?
            .map(Into::into),
    };
    match place.owner.as_deref() {
        // No owner has a shorter form than an empty one.
        Some([]) => Err(fields.error("owner")),
        _ => Ok(place),
    }
}

fn read_displaced(family: Family, fields: &mut Fields<'_>) -> Result<Displaced, Unreadable> {
    Ok(match family {
        Family::Lock | Family::Semaphore => return Err(fields.error("family")),
        Family::Once => Displaced::Late(fields.token("token")?),
        Family::Group => Displaced::Round(FinishedRound {
            expected: fields.u32_option("expected", 1, MAX_PERMITS)?,
            done: fields.number("done", 0, u64::MAX)?,
            lost: fields.number("lost", 0, u64::MAX)?,
            keep_until: fields.moment("keep-until")?,
        }),
    })
}

fn read_completion(fields: &mut Fields<'_>) -> Result<Completion, Unreadable> {
    Ok(Completion {
        keep_until: fields.moment("keep-until")?,
        token: fields.token("token")?,
        result: fields
            .optional_text("result", MAX_RESULT_LEN)?
            .map(Into::into),
    })
}

fn read_record(fields: &mut Fields<'_>) -> Result<Record, Unreadable> {
    Ok(Record {
        attempts: fields.number("attempts", 0, u64::MAX)?,
        touched: fields.moment("touched")?,
        reason: match fields.number("reason", 0, 3)? {
            0 => None,
            1 => Some(Reason::Lapsed),
            2 => Some(Reason::Revoked),
            _ => Some(Reason::Given(
                fields.text("reason", 0, MAX_RESULT_LEN)?.into(),
            )),
        },
        late: if fields.flag("late")? {
            Some(fields.token("late")?)
        } else {
            None
        },
        done: if fields.flag("completion")? {
            Some(read_completion(fields)?)
        } else {
            None
        },
    })
}
