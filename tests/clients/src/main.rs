//! A hundred tasks share one multiplexed connection of redis-rs, and one pattern subscription, and pass a lock on.
//!
//! The server's address is in `DSYNC_URL`. Exits non-zero if the lock was not passed on in the order of the places, if
//! two tasks held it at once, or if a task needed more than three commands.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use redis::aio::MultiplexedConnection;
use redis::{Client, Cmd, RedisResult, Value};
use tokio::sync::Notify;
use tokio::time::timeout;

const TASKS: u64 = 100;
const KEEP_MS: u64 = 30_000;
const KEY: &str = "shared:redis-rs";

/// What all tasks share.
struct Fleet {
    connection: MultiplexedConnection,
    /// Woken by a message on the channel.
    turns: Mutex<HashMap<String, Arc<Notify>>>,
    is_held: AtomicBool,
    commands: AtomicU64,
}

impl Fleet {
    fn turn(&self, channel: &str) -> Arc<Notify> {
        let mut turns = self.turns.lock().expect("no task panics with the lock");
        Arc::clone(turns.entry(channel.to_owned()).or_default())
    }

    async fn call(&self, command: &Cmd) -> RedisResult<Vec<Value>> {
        self.commands.fetch_add(1, SeqCst);
        command.query_async(&mut self.connection.clone()).await
    }
}

/// The request of a task.
fn request(task: u64) -> Cmd {
    let mut command = redis::cmd("DLOCK.ACQUIRE");
    command.arg(KEY).arg("TOKEN").arg(format!("task-{task}"));
    command.arg("PX").arg(30_000).arg("QUEUE").arg(KEEP_MS);
    command
}

/// The channel of the turn, if the reply is `["WAITING", place, channel]`, or else the grant's fence.
fn channel_or_fence(reply: &[Value]) -> Result<String, u64> {
    match reply {
        [_, _, Value::BulkString(channel)] => Ok(String::from_utf8_lossy(channel).into_owned()),
        [_, Value::Int(fence)] => Err(fence.unsigned_abs()),
        other => panic!("not a reply to a request with QUEUE: {other:?}"),
    }
}

/// Waits for the turn of the task, and passes the lock on. Returns the fence.
async fn work(fleet: Arc<Fleet>, task: u64) -> RedisResult<u64> {
    let request = request(task);
    let fence = loop {
        match channel_or_fence(&fleet.call(&request).await?) {
            Err(fence) => break fence,
            Ok(channel) => {
                let turn = fleet.turn(&channel);
                // A message may be lost, so ask again in time to keep the place.
                let _ = timeout(Duration::from_millis(KEEP_MS / 3), turn.notified()).await;
            }
        }
    };
    assert!(!fleet.is_held.swap(true, SeqCst), "task {task} is not alone");
    tokio::task::yield_now().await;
    fleet.is_held.store(false, SeqCst);
    fleet.commands.fetch_add(1, SeqCst);
    let released: u64 = redis::cmd("DLOCK.RELEASE")
        .arg(KEY)
        .arg(format!("task-{task}"))
        .query_async(&mut fleet.connection.clone())
        .await?;
    assert_eq!(released, 1, "task {task}");
    Ok(fence)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> RedisResult<()> {
    let url = std::env::var("DSYNC_URL").expect("DSYNC_URL");
    let client = Client::open(url)?;
    let connection = client.get_multiplexed_async_connection().await?;
    let fleet = Arc::new(Fleet {
        connection,
        turns: Mutex::default(),
        is_held: AtomicBool::new(false),
        commands: AtomicU64::new(0),
    });
    let mut subscription = client.get_async_pubsub().await?;
    subscription.psubscribe("dsync:*").await?;
    let listening = Arc::clone(&fleet);
    tokio::spawn(async move {
        let mut messages = subscription.on_message();
        while let Some(message) = messages.next().await {
            listening.turn(message.get_channel_name()).notify_one();
        }
    });
    // The tasks start in order, and a multiplexed connection keeps the order of its requests.
    let tasks: Vec<_> = (0..TASKS).map(|task| tokio::spawn(work(Arc::clone(&fleet), task))).collect();
    let mut last = 0;
    for (number, task) in tasks.into_iter().enumerate() {
        let fence = task.await.expect("no task panics")?;
        assert!(fence > last, "task {number} was overtaken");
        last = fence;
    }
    let commands = fleet.commands.load(SeqCst);
    assert!(commands <= 3 * TASKS, "{commands} commands for {TASKS} acquisitions");
    println!("redis-rs: {TASKS} tasks on one connection, in order, {commands} commands");
    Ok(())
}
