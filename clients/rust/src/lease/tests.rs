use super::*;
use crate::signal::now;
use crate::sync::Client;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;

const SECOND: Duration = Duration::from_secs(1);

/// After so long, a thread or a task that was started waits.
const WAITS: Duration = Duration::from_millis(500);

fn lease_sent_before(length: Duration, margin: Duration, since: Duration) -> Lease {
    let margin = Some(margin);
    Lease::new(
        Terms {
            lease: length,
            margin,
            max_hold: None,
        },
        Moment::now().before(since),
    )
}

/// A lease of this length, with the margin of this hold.
fn asked(lease: &Lease, length: Duration) -> Asked {
    let terms = lease.state.lock().unwrap().wanted;
    Terms {
        lease: length,
        ..terms
    }
    .asks(Duration::ZERO)
}

fn wait(lease: &Lease) -> Option<Loss> {
    now(lease.wait::<Client>(3600 * SECOND))
}

impl Lease {
    /// The machine sleeps so long: its monotonic clock stands still, and no wait of the system goes on.
    fn suspend(&self, time: Duration) {
        *self.suspended.lock().unwrap() += time;
    }
}

#[test]
fn lost_lease_stays_lost_when_a_late_answer_arrives() {
    let lease = lease_sent_before(60 * SECOND, SECOND, 59 * SECOND);
    lease.renewed(Moment::now(), asked(&lease, 60 * SECOND));
    assert_eq!(lease.loss(), Some(Loss::Unanswered));
    assert!(lease.left().is_zero());
}

#[test]
fn renewal_moves_the_end_and_never_back() {
    let lease = lease_sent_before(60 * SECOND, SECOND, 50 * SECOND);
    lease.renewed(Moment::now(), asked(&lease, 60 * SECOND));
    assert!(lease.left() > 40 * SECOND);
    lease.renewed(
        Moment::now().before(50 * SECOND),
        asked(&lease, 60 * SECOND),
    );
    assert!(lease.left() > 40 * SECOND);
    let end = lease.end();
    assert!(end > Instant::now() + 50 * SECOND && end <= Instant::now() + 60 * SECOND);
    lease.ended();
    assert_eq!(lease.loss(), Some(Loss::Ended));
}

#[test]
fn default_margin_is_a_tenth_and_at_most_two_seconds() {
    assert_eq!(usual_margin(10 * SECOND), SECOND);
    assert_eq!(usual_margin(60 * SECOND), 2 * SECOND);
}

#[test]
fn renewal_is_due_at_a_third_of_the_lease_and_sooner_after_a_failure() {
    let lease = lease_sent_before(60 * SECOND, SECOND, 19 * SECOND);
    let Renewal::In(left) = lease.renewal() else {
        panic!("too early");
    };
    assert!(left <= SECOND);
    lease.suspend(SECOND);
    assert_eq!(lease.renewal(), Renewal::Due(asked(&lease, 60 * SECOND)));
    // It is on its way.
    assert!(matches!(lease.renewal(), Renewal::In(_)));
    lease.not_renewed(false);
    assert!(matches!(lease.renewal(), Renewal::In(_)));
    lease.suspend(SECOND);
    assert_eq!(lease.renewal(), Renewal::Due(asked(&lease, 60 * SECOND)));
    lease.renewed(lease.now(), asked(&lease, 60 * SECOND));
    lease.suspend(19 * SECOND);
    assert!(matches!(lease.renewal(), Renewal::In(_)));
    lease.ended();
    assert_eq!(lease.renewal(), Renewal::Not);
}

#[test]
fn loss_is_told_to_a_thread_when_the_machine_goes_on_after_a_suspension() {
    let lease = lease_sent_before(600 * SECOND, 2 * SECOND, Duration::ZERO);
    let lease = Arc::new(lease);
    let (tell, told) = mpsc::channel();
    let watching = Arc::clone(&lease);
    thread::spawn(move || tell.send(wait(&watching)));
    thread::sleep(WAITS);
    lease.suspend(900 * SECOND);
    // Long before the 600 s that the waits of the system would still last.
    let loss = told.recv_timeout(60 * SECOND);
    assert_eq!(loss, Ok(Some(Loss::Unanswered)));
    assert!(lease.end() <= Instant::now());
}

#[cfg(feature = "tokio")]
#[tokio::test(flavor = "multi_thread")]
async fn loss_is_told_to_a_task_when_the_machine_goes_on_after_a_suspension() {
    let lease = lease_sent_before(600 * SECOND, 2 * SECOND, Duration::ZERO);
    let lease = Arc::new(lease);
    let watching = Arc::clone(&lease);
    let task =
        tokio::spawn(async move { watching.wait::<crate::aio::Client>(3600 * SECOND).await });
    tokio::time::sleep(WAITS).await;
    lease.suspend(900 * SECOND);
    let loss = tokio::time::timeout(60 * SECOND, task).await;
    assert_eq!(loss.unwrap().unwrap(), Some(Loss::Unanswered));
}

#[test]
fn child_of_a_fork_holds_nothing() {
    let mut lease = lease_sent_before(60 * SECOND, SECOND, Duration::ZERO);
    lease.process = lease.process.wrapping_add(1);
    // In a child, the thread that held this lock does not exist.
    let _locked = lease.state.lock().unwrap();
    assert_eq!(lease.loss(), Some(Loss::Forked));
    assert_eq!(wait(&lease), Some(Loss::Forked));
    assert_eq!(lease.renewal(), Renewal::Not);
    assert!(lease.left().is_zero());
}

/// The server may have carried out a renewal whose answer is lost.
#[test]
fn shorter_lease_counts_before_it_is_answered() {
    let lease = lease_sent_before(60 * SECOND, SECOND, 10 * SECOND);
    lease.want(Some(5 * SECOND)).unwrap();
    assert!(lease.left() > 40 * SECOND);
    let seen = lease.changed.seen();
    assert_eq!(lease.renewal(), Renewal::Due(asked(&lease, 5 * SECOND)));
    assert!(lease.left() <= 4 * SECOND && lease.left() > 3 * SECOND);
    // Who waits for the loss looks again.
    assert!(lease.changed.seen() > seen);
    lease.not_renewed(true);
    lease.suspend(2 * SECOND);
    assert_eq!(lease.renewal(), Renewal::Due(asked(&lease, 5 * SECOND)));
    lease.suspend(2 * SECOND);
    assert_eq!(lease.loss(), Some(Loss::Unanswered));
}

/// With its margin, a longer lease that is not granted yet left less of the hold, or nothing.
#[test]
fn longer_lease_counts_when_it_is_answered() {
    let terms = Terms {
        lease: 3 * SECOND,
        ..Terms::default()
    };
    let lease = Lease::new(terms, Moment::now());
    lease.want(Some(60 * SECOND)).unwrap();
    assert!(lease.left() > 2 * SECOND);
    assert_eq!(lease.renewal(), Renewal::Due(asked(&lease, 60 * SECOND)));
    assert!(lease.left() > 2 * SECOND && lease.left() < 3 * SECOND);
    lease.renewed(lease.now(), asked(&lease, 60 * SECOND));
    assert!(lease.left() > 50 * SECOND);
}
