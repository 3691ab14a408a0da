//! `dsync once`: what has become of work, and the end of an attempt by its token.

use std::io::Write;
use std::time::Duration;

use dsync_client::{Client, Once as Work, Outcome};
use redis::Value;
use serde_json::json;

use crate::args::{Attempt, Once};
use crate::failure::{Failure, Result, Status, usage};
use crate::family::Family;
use crate::info::{number, of_reply, text};
use crate::library::given_up;
use crate::password;
use crate::profile::variable;
use crate::servers::Servers;
use crate::text::{print, quoted};

pub fn run(servers: &Servers, asked: &Once, out: &mut impl Write) -> Result<()> {
    let (key, state, told, json) = match asked {
        Once::Get { key, retry, json } => return get(servers, key, retry.retry_for, *json, out),
        Once::Done {
            key,
            attempt,
            result,
            keep,
            forever,
            json,
        } => {
            let result = result.clone();
            let (keep, forever) = (*keep, *forever);
            end(servers, key, attempt, move |mut work| {
                if let Some(time) = keep {
                    work = work.keep(time);
                }
                if forever {
                    work = work.forever();
                }
                work.done(result.as_ref().map(String::as_bytes))
            })?;
            (
                key,
                "done",
                format!("{} is done", quoted(key.as_bytes())),
                json,
            )
        }
        Once::Fail {
            key,
            attempt,
            reason,
            delay,
            json,
        } => {
            let (reason, delay) = (reason.clone(), delay.unwrap_or_default());
            end(servers, key, attempt, move |work| {
                work.retry_delay(delay).fail(reason.as_deref())
            })?;
            let text = format!("the attempt at {} has failed", quoted(key.as_bytes()));
            (key, "failed", text, json)
        }
    };
    let fields = json!({ "key": key, "state": state });
    Ok(print(out, *json, &fields, &told)?)
}

fn get(
    servers: &Servers,
    key: &str,
    retry_for: Duration,
    json: bool,
    out: &mut impl Write,
) -> Result<()> {
    let name = quoted(key.as_bytes());
    let work = key.to_owned();
    match servers.ask(&name, retry_for, |client| client.once(work).result())? {
        Outcome::Done { result, attempt } if json => {
            let result = result.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            let told = json!({ "key": key, "state": "done", "attempt": attempt, "result": result });
            writeln!(out, "{told}")?;
        }
        // As it is: it is the worker's, and goes to a program.
        Outcome::Done { result, .. } => out.write_all(&result.unwrap_or_default())?,
        Outcome::Failed { reason, attempts } => return Err(given_up(&name, attempts, &reason)),
        _ => {
            let message =
                format!("{name} is not done; `dsync info` tells whether somebody is at work");
            let not_done = Failure::new(Status::Busy, message);
            return Err(failed(servers, key).unwrap_or(not_done));
        }
    }
    Ok(())
}

/// Returns the failure of work whose attempts have failed, unless somebody is at work or a delay lasts: then it may yet
/// be done. `None` also where that cannot be told, because the user may only GET.
fn failed(servers: &Servers, key: &str) -> Option<Failure> {
    let mut node = servers.first().ok()?;
    let command = Family::Once.command("INFO", key.as_bytes());
    let reply: Value = servers.ask_about_key(&mut node, &command).ok()?.ok()?;
    let info = of_reply(node.name(), servers.login.db(), key.as_bytes(), &reply)?;
    let is_idle = text(&info, "state") == Some("idle");
    let attempts = number(&info, "attempts").filter(|attempts| is_idle && *attempts > 0)?;
    let reason = text(&info, "last_reason").unwrap_or_default();
    Some(given_up(&quoted(key.as_bytes()), attempts, reason))
}

/// Ends the attempt, however often that has to be said.
fn end(
    servers: &Servers,
    key: &str,
    attempt: &Attempt,
    end: impl FnOnce(Work) -> dsync_client::Result<bool> + Send + 'static,
) -> Result<()> {
    let name = quoted(key.as_bytes());
    let (work, token) = (key.to_owned(), attempt.token()?);
    let end = |client: Client| end(client.once(work).token(token));
    match servers.ask(&name, attempt.retry_for, end)? {
        true => Ok(()),
        false => {
            let message =
                format!("the token has no attempt at {name}: it has lapsed, or ended before");
            Err(Failure::new(Status::Nothing, message))
        }
    }
}

impl Attempt {
    fn token(&self) -> Result<String> {
        match &self.token_file {
            Some(file) => password::read(file),
            None => variable("DSYNC_TOKEN").ok_or_else(|| {
                usage("the token of the attempt is missing: give it in DSYNC_TOKEN, or in a file with --token-file")
            }),
        }
    }
}
