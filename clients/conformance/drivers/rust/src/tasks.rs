//! The client for tasks. Each order has a task.

use std::collections::HashMap;
use std::future::ready;
use std::io::stdin;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use dsync_client::Begun;
use dsync_client::aio::{Client, Hold, Member, Run, Waits};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::task::AbortHandle;

use crate::order::{Answer, Order, common};

enum Held {
    Hold(Hold),
    Member(Member),
    Run(Run),
}

impl std::ops::Deref for Held {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        match self {
            Held::Hold(hold) => hold,
            Held::Member(member) => member,
            Held::Run(run) => run,
        }
    }
}

struct Driver {
    waits: Waits,
    client: OnceLock<Client>,
    held: Mutex<HashMap<String, Held>>,
    asking: Mutex<HashMap<String, AbortHandle>>,
}

pub fn main(waits: Waits) {
    let driver = Arc::new(Driver {
        waits,
        client: OnceLock::new(),
        held: Mutex::default(),
        asking: Mutex::default(),
    });
    let runtime = Runtime::new().expect("a runtime");
    for line in stdin().lines() {
        let order = Arc::new(Order::read(&line.expect("an order")));
        let driver = Arc::clone(&driver);
        runtime.spawn(async move {
            let work = tokio::spawn({
                let (driver, order) = (Arc::clone(&driver), Arc::clone(&order));
                async move { driver.obey(&order).await }
            });
            if order.what() == "acquire" {
                driver
                    .asking
                    .lock()
                    .expect("asking")
                    .insert(order.name(), work.abort_handle());
            }
            match work.await {
                Ok(answer) => order.answer(answer),
                Err(gone) if gone.is_cancelled() => order.answer(Ok(json!({ "is": "given up" }))),
                Err(gone) => order.answer(Ok(json!({ "is": "error", "text": gone.to_string() }))),
            }
        });
    }
}

impl Driver {
    async fn obey(&self, order: &Order) -> Answer {
        match order.what() {
            "connect" => {
                let client = Client::new(order.server()?).with_waits(self.waits);
                assert!(self.client.set(client).is_ok(), "one client");
                Ok(json!({ "is": "connected" }))
            }
            "acquire" => self.acquire(order).await,
            "give_up" => {
                let asking = self.asking.lock().expect("asking");
                let work = asking.get(&order.name());
                work.ok_or_else(|| order.unknown())?.abort();
                Ok(json!({ "is": "cancelled" }))
            }
            "until_lost" => self.until_lost(order).await,
            "renew" => {
                // Nobody asks for it meanwhile.
                let held = self.held.lock().expect("held").remove(&order.name());
                let held = held.ok_or_else(|| order.unknown())?;
                let renewed = held.renew_for(order.time("lease").expect("a lease")).await;
                self.held.lock().expect("held").insert(order.name(), held);
                Ok(renewed.map(|()| json!({ "is": "renewed" }))?)
            }
            "look" => Ok(json!({ "is": self.state_of(order)? })),
            "show" => {
                let held = self.held.lock().expect("held");
                let text = match held.get(&order.name()).ok_or_else(|| order.unknown())? {
                    Held::Hold(hold) => format!("{hold:?}"),
                    Held::Member(member) => format!("{member:?}"),
                    Held::Run(run) => format!("{run:?}"),
                };
                Ok(json!({ "is": "shown", "text": text }))
            }
            "holders" => {
                let client = self.client.get().expect("a client");
                let holders = client.lock(order.text("key")).holders().await?;
                let fences: Vec<u64> = holders.iter().map(|holder| holder.fence).collect();
                Ok(json!({ "is": "holders", "fences": fences }))
            }
            "once" => Ok(self.work_once(order).await),
            "locked" => {
                let (client, key) = (self.client.get().expect("a client"), order.text("key"));
                let is_locked = match order.text("family") {
                    "semaphore" => order.semaphore(client.semaphore(key)).locked().await?,
                    _ => client.lock(key).locked().await?,
                };
                Ok(json!({ "is": if is_locked { "locked" } else { "free" } }))
            }
            ending => self.end(order, ending).await,
        }
    }

    async fn acquire(&self, order: &Order) -> Answer {
        let mut client = self.client.get().expect("a client").clone();
        if let Some(time) = order.time("retry_for") {
            client = client.with_retry_for(time);
        }
        let (key, wait) = (order.text("key"), order.time("wait"));
        // A try, a wait that ends, or one without an end.
        macro_rules! ask {
            ($options:expr, $asks:ident, $asks_for:ident, $tries:ident) => {{
                let options = common!(order, $options);
                match wait {
                    None => options.$asks().await?,
                    Some(Duration::ZERO) => options.$tries().await?,
                    Some(time) => options.$asks_for(time).await?,
                }
            }};
        }
        let held = match order.text("family") {
            "once" => {
                let once = order.once(client.once(key));
                match ask!(once, begin, begin_for, try_begin) {
                    Begun::Run(run) => Held::Run(run),
                    Begun::Done { result, .. } => {
                        let text =
                            String::from_utf8_lossy(&result.unwrap_or_default()).into_owned();
                        return Ok(json!({ "is": "done", "text": text }));
                    }
                }
            }
            "semaphore" => {
                let semaphore = order.semaphore(client.semaphore(key));
                Held::Hold(ask!(semaphore, acquire, acquire_for, try_acquire))
            }
            "group" => Held::Member(ask!(client.group(key), add, add_for, try_add)),
            _ => {
                let lock = order.lock(client.lock(key));
                Held::Hold(ask!(lock, acquire, acquire_for, try_acquire))
            }
        };
        let attempt = match &held {
            Held::Run(run) => Some(run.attempt()),
            Held::Hold(_) | Held::Member(_) => None,
        };
        let (fence, index) = (held.fence(), held.index());
        self.held.lock().expect("held").insert(order.name(), held);
        Ok(json!({ "is": "held", "fence": fence, "attempt": attempt, "index": index }))
    }

    async fn work_once(&self, order: &Order) -> Value {
        let client = self.client.get().expect("a client");
        let mut runs = 0;
        let once = order.once(client.once(order.text("key")));
        let value = once.call(|_| {
            runs += 1;
            ready(order.work(runs))
        });
        let value = value.await;
        order.worked(value, runs)
    }

    async fn until_lost(&self, order: &Order) -> Answer {
        let end = Instant::now() + order.time("ms").expect("a time");
        while self.state_of(order)? == "held" && Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(json!({ "is": self.state_of(order)? }))
    }

    fn state_of(&self, order: &Order) -> Result<&'static str, String> {
        let held = self.held.lock().expect("held");
        let hold = held.get(&order.name()).ok_or_else(|| order.unknown())?;
        Ok(if hold.is_lost() { "lost" } else { "held" })
    }

    async fn end(&self, order: &Order, ending: &str) -> Answer {
        let held = self.held.lock().expect("held").remove(&order.name());
        let held = held.ok_or_else(|| order.unknown())?;
        let said = match (ending, held) {
            ("release", Held::Hold(hold)) => {
                hold.release().await?;
                "released"
            }
            ("done", Held::Member(member)) => {
                member.done().await?;
                "done"
            }
            ("done", Held::Run(run)) => {
                run.done(Some(order.text("result").as_bytes())).await?;
                "done"
            }
            ("fail", Held::Run(run)) => {
                run.fail(order.text("reason")).await?;
                "failed"
            }
            ("forget", held) => {
                drop(held);
                if order.keeps() {
                    return Ok(
                        json!({ "is": "cannot", "why": "a hold that is dropped is released" }),
                    );
                }
                "forgotten"
            }
            _ => return Err(format!("no order {ending} for this hold").into()),
        };
        Ok(json!({ "is": said }))
    }
}
