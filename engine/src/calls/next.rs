//! What the queue of a key needs next: a pure function of the queue and the state. What becomes of one request is the
//! rule of its family: see [`Body::admission`].

use crate::answer::Answer;
use crate::queue::place::Place;
use crate::queue::wait_queue::WaitQueue;
use crate::state::Body;
use crate::state::families::policy::Admission;
use crate::state::families::semaphore;
use crate::types::{Claim, Family, Rank};

pub(crate) enum Next {
    /// Nothing: the first in line must wait.
    Nothing,
    /// Give this place or watcher this answer.
    Tell(Rank, Answer),
    Grant(Rank),
    /// The lane must be found that is next.
    InLanes,
    /// The token of the place has a hold already, because RENAME or SWAPDB brought a key here in which it holds.
    Repeat(Rank),
    /// All attempts that this request allows have failed: answer FAILED.
    GiveUp(Rank),
    /// The round is over now: record that.
    Finish,
    /// Give all watchers this answer: the round has finished, the group is gone, or the key has a value of another family.
    TellWatchers(Answer),
}

/// Returns what becomes of a request that nobody is before, under this limit. Without a value the request makes a new
/// one: only a value has a limit of 0.
pub(crate) fn admission(
    body: Option<&Body>,
    claim: Claim,
    limit: Option<u32>,
    bound: Option<u32>,
) -> Admission {
    match (semaphore::refusal(claim, limit), body) {
        (Some(refusal), _) => Admission::Never(refusal.into()),
        (None, Some(body)) => body.admission(claim, limit, bound),
        (None, None) => Admission::Now,
    }
}

fn admission_of(body: Option<&Body>, place: &Place, limit: Option<u32>) -> Admission {
    admission(body, place.claim, limit, place.standing.bound())
}

impl Next {
    #[inline]
    pub(crate) fn of(body: Option<&Body>, queue: Option<&WaitQueue>) -> Next {
        match queue {
            Some(queue) => Next::of_queue(body, queue),
            None => of_round(body, false),
        }
    }

    fn of_queue(body: Option<&Body>, queue: &WaitQueue) -> Next {
        if let Some((rank, answer)) = queue.next_answered() {
            return Next::Tell(rank, answer);
        }
        if queue.has_watching() {
            match body.map(Body::family) {
                Some(Family::Group) => {}
                Some(_) => return Next::TellWatchers(Answer::WrongType),
                None => return Next::TellWatchers(Answer::Removed),
            }
        }
        let Some(head) = queue.head() else {
            let is_for_permits = body.is_none_or(|body| body.family() == Family::Semaphore);
            // A lane that has lost its last vacant place loses its turn.
            let lanes = queue.lanes().filter(|_| is_for_permits);
            return match lanes.is_some_and(|lanes| !lanes.is_sorted()) {
                true => Next::InLanes,
                false => of_round(body, queue.has_watching()),
            };
        };
        let (rank, family) = (head.rank(), head.claim.family());
        if body.is_some_and(|body| body.family() != family) {
            return Next::Tell(rank, Answer::WrongType);
        }
        // Without a value the first in line makes a new one, under the limit that its family last waited for.
        let limit = body.map_or_else(|| queue.limit(family), Body::limit_in_force);
        // Some are told before their turn, because they would wait in vain.
        let in_vain = match body.and_then(Body::once) {
            Some(once) if once.is_delayed() => queue.least_patient(),
            _ => queue.heaviest(),
        };
        let in_vain = in_vain.filter(|place| place.claim.family() == family);
        if let Some(place) = in_vain
            && let Admission::Never(answer) = admission_of(body, place, limit)
        {
            return Next::Tell(place.rank(), answer);
        }
        match queue.lanes().filter(|_| limit.is_some()) {
            Some(_) if family == Family::Semaphore => Next::InLanes,
            _ => Next::of_place(body, head, limit),
        }
    }

    /// Returns what becomes of the place that nobody is before, under this limit.
    #[inline(always)]
    pub(super) fn of_place(body: Option<&Body>, place: &Place, limit: Option<u32>) -> Next {
        let rank = place.rank();
        if body.is_some_and(|body| body.holds().by_token(&place.token).is_some()) {
            return Next::Repeat(rank);
        }
        match admission_of(body, place, limit) {
            Admission::Now => Next::Grant(rank),
            Admission::Later => Next::Nothing,
            Admission::Never(answer) => Next::Tell(rank, answer),
            Admission::GiveUp => Next::GiveUp(rank),
        }
    }
}

/// Nobody is in line.
fn of_round(body: Option<&Body>, is_watched: bool) -> Next {
    match body.and_then(Body::group) {
        Some(group) if group.is_over() => Next::Finish,
        // It finished just now. Or RENAME or SWAPDB has replaced the group with one that had finished, or the last queued
        // ADD has left a group to which nobody was added.
        Some(group) if is_watched && group.has_nothing_to_wait_for(false) => {
            Next::TellWatchers(group.answer_finished())
        }
        _ => Next::Nothing,
    }
}
