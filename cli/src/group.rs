//! `dsync group`: how many jobs a round has, and the wait for them.

use std::io::Write;

use dsync_client::Client;
use serde_json::json;

use crate::args::{Group, Info};
use crate::duration::short;
use crate::failure::{Failure, Result, Status};
use crate::info;
use crate::servers::Servers;
use crate::text::printable;

pub fn run(servers: &Servers, asked: &Group, out: &mut impl Write) -> Result<()> {
    let client = || -> Result<Client> {
        Ok(Client::new(servers.server()?).with_response_timeout(servers.timeout))
    };
    let (Group::Expect { key, .. } | Group::Wait { key, .. } | Group::Info(Info { key, .. })) =
        asked;
    let name = printable(key.as_bytes());
    match asked {
        Group::Info(options) => info::run(servers, options, out)?,
        Group::Expect { key, jobs, json } => {
            let owed = client()?.group(key).expect(*jobs);
            let owed = owed.map_err(|error| servers.failure(&name, &error))?;
            match json {
                true => writeln!(out, "{}", json!({ "key": key, "owed": owed }))?,
                false => writeln!(out, "{owed}")?,
            }
        }
        Group::Wait { key, wait, json } => {
            let client = client()?;
            let group = client.group(key);
            let tally = match wait {
                Some(time) => group.wait_for(*time),
                None => group.wait().map(Some),
            };
            let Some(tally) = tally.map_err(|error| servers.failure(&name, &error))? else {
                let message = format!(
                    "the round of '{name}' is not finished after {}",
                    short(wait.unwrap_or_default())
                );
                return Err(Failure::new(Status::Busy, message));
            };
            match json {
                true => writeln!(
                    out,
                    "{}",
                    json!({ "key": key, "done": tally.done, "lapsed": tally.lapsed })
                )?,
                false => writeln!(out, "done {}, lapsed {}", tally.done, tally.lapsed)?,
            }
        }
    }
    Ok(())
}
