//! `dsync group`: how many jobs a round has, and the wait for them.

use std::io::Write;

use dsync_client::Client;
use serde_json::json;

use crate::args::Group;
use crate::duration::short;
use crate::failure::{Failure, Result, Status};
use crate::info;
use crate::servers::Servers;
use crate::text::{print, quoted};

pub fn run(servers: &Servers, asked: &Group, out: &mut impl Write) -> Result<()> {
    let name = |key: &str| quoted(key.as_bytes());
    match asked {
        Group::Info(options) => info::run(servers, options, out),
        Group::Expect {
            key,
            jobs,
            retry,
            json,
        } => {
            let (group, jobs) = (key.clone(), *jobs);
            let expect = move |client: Client| client.group(group).expect(jobs);
            let owed = servers.ask(&name(key), retry.retry_for, expect)?;
            let told = json!({ "key": key, "owed": owed });
            Ok(print(out, *json, &told, &owed.to_string())?)
        }
        Group::Wait {
            key,
            wait,
            retry,
            json,
        } => {
            let group = servers.patient(retry.retry_for)?.group(key);
            let tally = match wait {
                Some(time) => group.wait_for(*time),
                None => group.wait().map(Some),
            };
            let tally = tally.map_err(|error| servers.failure(&name(key), &error))?;
            let Some(tally) = tally else {
                let (name, time) = (name(key), short(wait.unwrap_or_default()));
                let message = format!("the round of {name} is not finished after {time}");
                return Err(Failure::new(Status::Busy, message));
            };
            let told = json!({ "key": key, "done": tally.done, "lapsed": tally.lapsed });
            let text = format!("done {}, lapsed {}", tally.done, tally.lapsed);
            Ok(print(out, *json, &told, &text)?)
        }
    }
}
