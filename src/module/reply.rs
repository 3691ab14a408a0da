//! Writes the engine's answers and refusals as replies. All texts of refusals are here.

use super::redis::context::Ctx;
use dsync_engine::answer::Answer;
use dsync_engine::types::{Fence, Rank, new_token_buffer};
use dsync_engine::{FullQueue, Refusal};

/// The server's own words, where it refuses a write on a replica.
pub(crate) const READ_ONLY: &str = "READONLY You can't write against a read only replica.";

/// Writes the reply for an answer of the engine.
pub(crate) fn answer(ctx: Ctx<'_>, answer: &Answer) {
    match answer {
        Answer::Granted {
            token,
            fence,
            index,
        } => {
            granted(ctx, token.text(&mut new_token_buffer()), *fence, *index);
        }
        Answer::Run {
            token,
            fence,
            attempt,
        } => {
            ctx.array(4);
            ctx.bulk(b"RUN");
            ctx.bulk(token.text(&mut new_token_buffer()));
            ctx.integer(fence.0.cast_signed());
            ctx.integer(count(*attempt));
        }
        Answer::Done { result, attempt } => {
            ctx.array(3);
            ctx.bulk(b"DONE");
            match result {
                Some(result) => ctx.bulk(result),
                None => ctx.null(),
            }
            ctx.integer(count(*attempt));
        }
        Answer::GivenUp { reason, attempts } => {
            ctx.array(3);
            ctx.bulk(b"FAILED");
            ctx.bulk(reason);
            ctx.integer(count(*attempts));
        }
        Answer::NotGranted => ctx.null(),
        // `respond` knows the key, which the channel needs. A place that was parked is never answered so.
        Answer::Waiting { .. } => ctx.null(),
        Answer::Finished { done, lapsed } => {
            ctx.array(2);
            ctx.integer(count(*done));
            ctx.integer(count(*lapsed));
        }
        Answer::Refused(refusal) => ctx.error(&words(*refusal)),
        Answer::Superseded => {
            ctx.error(
                "UNBLOCKED superseded: the same token asked again and has taken over the place",
            );
        }
        Answer::Withdrawn => {
            ctx.error(
                "UNBLOCKED released: RELEASE with the token of this request has withdrawn it",
            );
        }
        Answer::Removed => ctx.error("UNBLOCKED the group was removed before it finished"),
        Answer::WrongType => ctx.error_wrong_type(),
        Answer::KeyLeft => {
            ctx.error("TRYAGAIN the key has moved to another node with its slot: ask again");
        }
        Answer::Demoted => {
            ctx.error("UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)");
        }
    }
}

/// Writes the reply to a request that was granted, with the text of its token.
pub(crate) fn granted(ctx: Ctx<'_>, token: &[u8], fence: Fence, index: Option<u32>) {
    ctx.array(2 + usize::from(index.is_some()));
    ctx.bulk(token);
    ctx.integer(fence.0.cast_signed());
    if let Some(index) = index {
        ctx.integer(index.into());
    }
}

/// Writes the reply to a request whose place is kept.
pub(crate) fn waiting(ctx: Ctx<'_>, key: &[u8], position: u32, rank: Rank) {
    ctx.array(3);
    ctx.bulk(b"WAITING");
    ctx.integer(i64::from(position));
    ctx.bulk(&ctx.channel(key, rank.0.0));
}

/// Writes the value, or null where there is none.
pub(crate) fn or_null<T>(ctx: Ctx<'_>, value: Option<T>, write: impl FnOnce(T)) {
    match value {
        Some(value) => write(value),
        None => ctx.null(),
    }
}

/// A count as an integer reply.
pub(crate) fn count(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// The line of the error.
pub(crate) fn words(refusal: Refusal) -> String {
    match refusal {
        Refusal::NoLimit => "NOLIMIT no LIMIT was given and none is in force".to_owned(),
        Refusal::TooMany { permits, limit } => {
            format!("TOOMANY PERMITS {permits} is more than the limit in force, {limit}")
        }
        Refusal::Mismatch => {
            "MISMATCH the token holds or waits for this key with another mode or number of permits"
                .to_owned()
        }
        Refusal::TooManyForLane { permits, limit } => {
            format!("TOOMANY PERMITS {permits} is more than LANELIMIT {limit}")
        }
        Refusal::OtherLane => {
            "MISMATCH the token holds or waits for this key in another LANE".to_owned()
        }
        // The server's own words.
        Refusal::OutOfMemory => {
            "OOM command not allowed when used memory > 'maxmemory'.".to_owned()
        }
        Refusal::QueueFull(FullQueue::Key(bound)) => {
            format!("QUEUEFULL {bound} requests wait for this key (dsync.max-waiters-per-key)")
        }
        Refusal::QueueFull(FullQueue::Server(bound)) => {
            format!("QUEUEFULL {bound} requests wait on this server (dsync.max-waiters)")
        }
        Refusal::QueueFull(FullQueue::HalfOfKey(bound)) => format!(
            "QUEUEFULL {bound} places are kept for this key, half of dsync.max-waiters-per-key"
        ),
        Refusal::QueueFull(FullQueue::HalfOfServer(bound)) => {
            format!("QUEUEFULL {bound} places are kept on this server, half of dsync.max-waiters")
        }
        Refusal::QueueFull(FullQueue::Lane(places)) => format!(
            "QUEUEFULL its lane has {places} places, and no more are free \
             (dsync.max-waiters-per-key, dsync.max-waiters)"
        ),
    }
}
