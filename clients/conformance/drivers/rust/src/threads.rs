//! The client for threads. Each order has a thread.

use std::collections::HashMap;
use std::io::stdin;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use dsync_client::{Begun, Cancel, Client, Hold, Member, Run};
use serde_json::{Value, json};

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

#[derive(Default)]
struct Driver {
    client: OnceLock<Client>,
    held: Mutex<HashMap<String, Held>>,
    asking: Mutex<HashMap<String, Cancel>>,
}

pub fn main() {
    let driver = Arc::new(Driver::default());
    for line in stdin().lines() {
        let order = Order::read(&line.expect("an order"));
        let driver = Arc::clone(&driver);
        thread::spawn(move || order.answer(driver.obey(&order)));
    }
}

impl Driver {
    fn obey(&self, order: &Order) -> Answer {
        match order.what() {
            "connect" => {
                let client = Client::new(order.server()?);
                assert!(self.client.set(client).is_ok(), "one client");
                Ok(json!({ "is": "connected" }))
            }
            "acquire" => self.acquire(order),
            "give_up" => {
                let asking = self.asking.lock().expect("asking");
                let cancel = asking.get(&order.name());
                cancel.ok_or_else(|| order.unknown())?.cancel();
                Ok(json!({ "is": "cancelled" }))
            }
            "until_lost" => self.until_lost(order),
            "renew" => {
                // Nobody asks for it meanwhile.
                let held = self.held.lock().expect("held").remove(&order.name());
                let held = held.ok_or_else(|| order.unknown())?;
                let renewed = held.renew_for(order.time("lease").expect("a lease"));
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
                let holders = client.lock(order.text("key")).holders()?;
                let fences: Vec<u64> = holders.iter().map(|holder| holder.fence).collect();
                Ok(json!({ "is": "holders", "fences": fences }))
            }
            "once" => Ok(self.work_once(order)),
            "locked" => {
                let (client, key) = (self.client.get().expect("a client"), order.text("key"));
                let is_locked = match order.text("family") {
                    "semaphore" => order.semaphore(client.semaphore(key)).locked()?,
                    _ => client.lock(key).locked()?,
                };
                Ok(json!({ "is": if is_locked { "locked" } else { "free" } }))
            }
            ending => self.end(order, ending),
        }
    }

    fn acquire(&self, order: &Order) -> Answer {
        let mut client = self.client.get().expect("a client").clone();
        if let Some(time) = order.time("retry_for") {
            client = client.with_retry_for(time);
        }
        let cancel = Cancel::new();
        self.asking
            .lock()
            .expect("asking")
            .insert(order.name(), cancel.clone());
        let (key, wait) = (order.text("key"), order.time("wait"));
        // A try, a wait that ends, or one without an end.
        macro_rules! ask {
            ($options:expr, $asks:ident, $asks_for:ident, $tries:ident) => {{
                let options = common!(order, $options).cancel(&cancel);
                match wait {
                    None => options.$asks()?,
                    Some(Duration::ZERO) => options.$tries()?,
                    Some(time) => options.$asks_for(time)?,
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

    fn work_once(&self, order: &Order) -> Value {
        let client = self.client.get().expect("a client");
        let mut runs = 0;
        let value = order.once(client.once(order.text("key"))).call(|_| {
            runs += 1;
            order.work(runs)
        });
        order.worked(value, runs)
    }

    fn until_lost(&self, order: &Order) -> Answer {
        let end = Instant::now() + order.time("ms").expect("a time");
        while self.state_of(order)? == "held" && Instant::now() < end {
            thread::sleep(Duration::from_millis(10));
        }
        Ok(json!({ "is": self.state_of(order)? }))
    }

    fn state_of(&self, order: &Order) -> Result<&'static str, String> {
        let held = self.held.lock().expect("held");
        let hold = held.get(&order.name()).ok_or_else(|| order.unknown())?;
        Ok(if hold.is_lost() { "lost" } else { "held" })
    }

    fn end(&self, order: &Order, ending: &str) -> Answer {
        let held = self.held.lock().expect("held").remove(&order.name());
        let held = held.ok_or_else(|| order.unknown())?;
        let said = match (ending, held) {
            ("release", Held::Hold(hold)) => {
                hold.release()?;
                "released"
            }
            ("done", Held::Member(member)) => {
                member.done()?;
                "done"
            }
            ("done", Held::Run(run)) => {
                run.done(Some(order.text("result").as_bytes()))?;
                "done"
            }
            ("fail", Held::Run(run)) => {
                run.fail(order.text("reason"))?;
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
