//! What the queue of a key needs next: a pure function of the queue and the state.

use crate::answer::{Answer, Refusal};
use crate::queue::place::Place;
use crate::queue::wait_queue::WaitQueue;
use crate::state::Body;
use crate::types::{Claim, Family, Rank};

pub(crate) enum Next {
    /// Nothing: the first in line must wait.
    Nothing,
    /// Give this place or watcher this answer.
    Tell(Rank, Answer),
    Grant(Rank),
    /// The token of the place has a hold already, because RENAME or SWAPDB brought a key here in which it holds.
    Repeat(Rank),
    /// All attempts that this request allows have failed: answer FAILED.
    GiveUp(Rank),
    /// The round is over now: record that, and answer the watchers.
    Finish,
    /// The round had finished before this visit: answer the watchers.
    Finished,
    /// The group is gone, or the key has a value of another family: give the watchers this answer.
    Dismiss(Answer),
}

impl Next {
    pub(crate) fn of(body: Option<&Body>, queue: &WaitQueue) -> Next {
        if let Some((rank, answer)) = queue.next_answered() {
            return Next::Tell(rank, answer);
        }
        if queue.has_watching() {
            match body.map(Body::family) {
                Some(Family::Group) => {}
                Some(_) => return Next::Dismiss(Answer::WrongType),
                None => return Next::Dismiss(Answer::Removed),
            }
        }
        let head = queue.head();
        // Without a state the first in line makes a new one, under the limit that its family last waited for.
        let family = head.map(|head| head.claim.family());
        let remembered = family.and_then(|family| queue.limit(family));
        let limit = body.map_or(remembered, Body::limit_in_force);
        if let Some(next) = out_of_turn(body, queue, family, limit) {
            return next;
        }
        match head {
            Some(head) => of_head(body, head, limit),
            None => of_round(body, queue),
        }
    }
}

/// Those that are told before their turn, because they would wait in vain.
fn out_of_turn(
    body: Option<&Body>,
    queue: &WaitQueue,
    family: Option<Family>,
    limit: Option<u32>,
) -> Option<Next> {
    if family == Some(Family::Semaphore)
        && body.is_none_or(|body| body.family() == Family::Semaphore)
        && let Some(limit) = limit.filter(|limit| *limit >= 1)
        && let Some((rank, permits)) = queue.above(limit)
    {
        let refusal = Refusal::TooMany { permits, limit };
        return Some(Next::Tell(rank, Answer::Refused(refusal)));
    }
    let once = body.and_then(Body::once).filter(|once| once.is_delayed())?;
    queue.exhausted(once.attempts).map(Next::GiveUp)
}

fn of_head(body: Option<&Body>, head: &Place, limit: Option<u32>) -> Next {
    let (rank, claim) = (head.rank(), head.claim);
    let fits = match body {
        Some(body) if body.family() != claim.family() => {
            return Next::Tell(rank, Answer::WrongType);
        }
        Some(body) if body.holds().by_token(&head.token).is_some() => {
            return Next::Repeat(rank);
        }
        _ if matches!(claim, Claim::Permits(_)) && limit.is_none() => {
            return Next::Tell(rank, Answer::Refused(Refusal::NoLimit));
        }
        Some(body) => body.admits(claim, limit),
        None => limit != Some(0),
    };
    if let Some(once) = body.and_then(Body::once) {
        if let Some(answer) = once.answer_done() {
            return Next::Tell(rank, answer);
        }
        // A pause holds back runs, but FAILED is told.
        if once.may_begin() && once.is_exhausted(head.standing.max_attempts) {
            return Next::GiveUp(rank);
        }
    }
    match fits {
        true => Next::Grant(rank),
        false => Next::Nothing,
    }
}

/// Nobody is in line.
fn of_round(body: Option<&Body>, queue: &WaitQueue) -> Next {
    match body.and_then(Body::group) {
        Some(group) if group.is_over(false) => Next::Finish,
        // RENAME or SWAPDB has replaced the group with one that had finished, or the last queued ADD has left a group to
        // which nobody was added.
        Some(group) if queue.has_watching() && group.has_nothing_to_wait_for(false) => {
            Next::Finished
        }
        _ => Next::Nothing,
    }
}
