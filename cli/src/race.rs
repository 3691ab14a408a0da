//! Work that must not take longer than the user allows, whatever the libraries and the network do.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// Returns what the work comes to, or `None` when the time is up. What takes longer goes on unseen in its thread, until
/// its own time-outs end it.
pub fn within<T: Send + 'static>(
    time: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<Option<T>> {
    match start([work])?.recv_timeout(time) {
        Ok(result) => Ok(Some(result)),
        Err(RecvTimeoutError::Timeout) => Ok(None),
        Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("a thread has panicked")),
    }
}

/// Returns what the work comes to. If that takes longer, `tell` is called once.
pub fn watched<T: Send + 'static>(
    time: Duration,
    tell: impl FnOnce(),
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let results = start([work])?;
    let result = match results.recv_timeout(time) {
        Err(RecvTimeoutError::Timeout) => {
            tell();
            results.recv().ok()
        }
        result => result.ok(),
    };
    result.ok_or_else(|| io::Error::other("a thread has panicked"))
}

/// Makes all attempts at the same time. Returns the first success, or the failures of all.
pub fn first_of<T: Send + 'static, E: Send + 'static>(
    attempts: impl IntoIterator<Item = impl FnOnce() -> Result<T, E> + Send + 'static>,
) -> io::Result<Result<T, Vec<E>>> {
    let mut failures = Vec::new();
    for result in start(attempts)? {
        match result {
            Ok(success) => return Ok(Ok(success)),
            Err(failure) => failures.push(failure),
        }
    }
    Ok(Err(failures))
}

fn start<T: Send + 'static>(
    works: impl IntoIterator<Item = impl FnOnce() -> T + Send + 'static>,
) -> io::Result<Receiver<T>> {
    let (sender, results) = channel();
    for work in works {
        let sender = sender.clone();
        thread::Builder::new()
            .name("connect".into())
            .spawn(move || {
                // Nobody receives when the time is up, or when another attempt was faster.
                let _ = sender.send(work());
            })?;
    }
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_takes_longer_is_not_waited_for() {
        let (hold, released) = channel::<()>();
        let result = within(Duration::from_millis(10), move || released.recv());
        assert!(result.unwrap().is_none());
        drop(hold);
        assert_eq!(within(Duration::from_secs(60), || 7).unwrap(), Some(7));
    }

    #[test]
    fn first_success_wins_over_failures_and_over_what_does_not_end() {
        type Attempt = Box<dyn FnOnce() -> Result<u32, &'static str> + Send>;
        let (hold, released) = channel::<()>();
        let attempts: Vec<Attempt> = vec![
            Box::new(move || released.recv().map(|()| 0).map_err(|_| "late")),
            Box::new(|| Err("refused")),
            Box::new(|| Ok(7)),
        ];
        assert_eq!(first_of(attempts).unwrap(), Ok(7));
        drop(hold);
        let attempts: Vec<Attempt> = vec![Box::new(|| Err("a")), Box::new(|| Err("a"))];
        assert_eq!(first_of(attempts).unwrap(), Err(vec!["a", "a"]));
    }
}
