//! The asynchronous half, with tokio: the same locks, semaphores, groups and work-once keys, for tasks.
//!
//! ```no_run
//! # async fn nightly_job() {}
//! # async fn example() -> dsync_client::Result<()> {
//! let client = dsync_client::aio::Client::open("redis://127.0.0.1")?;
//! let hold = client.lock("nightly").acquire().await?;
//! // Dropped at its next await when the hold is lost.
//! hold.run(nightly_job()).await?;
//! hold.release().await
//! # }
//! ```
//!
//! All functions need a tokio runtime with its timer and its input and output enabled, because tasks of their own renew
//! the holds. Such a task does not run while another one keeps its thread busy: put long computations into
//! `tokio::task::spawn_blocking`. Every future may be dropped: a request that waits is then withdrawn by a task.

mod announce;
mod client;
mod connection;
mod hold;
#[cfg(test)]
mod tests;
mod together;

pub use client::{Client, Waits};
pub use hold::Attempt;

/// A [hold](crate::Hold) for tasks.
pub type Hold = crate::Hold<Client>;
/// A [membership](crate::Member) for tasks.
pub type Member = crate::Member<Client>;
/// An [attempt of the work](crate::Run) for tasks.
pub type Run = crate::Run<Client>;
/// What beginning work has come to.
pub type Begun = crate::Begun<Run>;
/// A [lock](crate::Lock) for tasks.
pub type Lock = crate::Lock<Client>;
/// A [semaphore](crate::Semaphore) for tasks.
pub type Semaphore = crate::Semaphore<Client>;
/// A [wait group](crate::Group) for tasks.
pub type Group = crate::Group<Client>;
/// [Work that is done once](crate::Once), for tasks.
pub type Once = crate::Once<Client>;
