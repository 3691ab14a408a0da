//! `dsync once`: what has become of work, and the end of an attempt by its token.

use std::io::Write;

use dsync_client::{Client, Outcome};
use redis::Cmd;
use serde_json::json;

use crate::args::{Once, Token};
use crate::failure::{Failure, Result, Status, usage};
use crate::password;
use crate::profile::variable;
use crate::servers::Servers;
use crate::text::printable;

pub fn run(servers: &Servers, asked: &Once, out: &mut impl Write) -> Result<()> {
    match asked {
        Once::Get { key, json } => get(servers, key, *json, out),
        Once::Done {
            key,
            token,
            result,
            keep,
            forever,
            json,
        } => {
            let mut command = redis::cmd("DONCE.DONE");
            command.arg(key).arg(token.read()?);
            if let Some(result) = result {
                command.arg("RESULT").arg(result);
            }
            if let Some(keep) = keep {
                command.arg("PX").arg(millis(keep));
            }
            if *forever {
                command.arg("PERSIST");
            }
            end(servers, key, &command)?;
            match json {
                true => writeln!(out, "{}", json!({ "key": key, "state": "done" }))?,
                false => writeln!(out, "'{}' is done", printable(key.as_bytes()))?,
            }
            Ok(())
        }
        Once::Fail {
            key,
            token,
            reason,
            delay,
            json,
        } => {
            let mut command = redis::cmd("DONCE.FAIL");
            command.arg(key).arg(token.read()?);
            if let Some(reason) = reason {
                command.arg("REASON").arg(reason);
            }
            if let Some(delay) = delay {
                command.arg("DELAY").arg(millis(delay));
            }
            end(servers, key, &command)?;
            let name = printable(key.as_bytes());
            match json {
                true => writeln!(out, "{}", json!({ "key": key, "state": "failed" }))?,
                false => writeln!(out, "the attempt at '{name}' has failed")?,
            }
            Ok(())
        }
    }
}

fn get(servers: &Servers, key: &str, json: bool, out: &mut impl Write) -> Result<()> {
    let client = Client::new(servers.server()?).with_response_timeout(servers.timeout);
    let name = printable(key.as_bytes());
    let outcome = client.once(key).result();
    let outcome = outcome.map_err(|error| servers.failure(&name, &error))?;
    match outcome {
        Outcome::Done { result, attempt } if json => {
            let result = result.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            writeln!(
                out,
                "{}",
                json!({ "key": key, "state": "done", "attempt": attempt, "result": result })
            )?;
        }
        // As it is: it is the worker's, and goes to a program.
        Outcome::Done { result, .. } => out.write_all(&result.unwrap_or_default())?,
        Outcome::Failed { reason, attempts } => {
            let reason = printable(reason.as_bytes());
            let message = format!(
                "'{name}' is given up after {attempts} attempts; the last failed with: {reason}"
            );
            return Err(Failure::new(Status::GivenUp, message));
        }
        _ => {
            let message =
                format!("'{name}' is not done; `dsync info` tells whether somebody is at work");
            return Err(Failure::new(Status::Busy, message));
        }
    }
    Ok(())
}

/// Ends the attempt. The answer is 1 if the token has one.
fn end(servers: &Servers, key: &str, command: &Cmd) -> Result<()> {
    let mut node = servers.first()?;
    let reply = servers.ask_about_key::<u64>(&mut node, command)?;
    match reply.map_err(|error| Failure::of_server(&node.peer, &error))? {
        1 => Ok(()),
        _ => {
            let message = format!(
                "the token has no attempt at '{}': it has lapsed, or ended before",
                printable(key.as_bytes())
            );
            Err(Failure::new(Status::Nothing, message))
        }
    }
}

impl Token {
    fn read(&self) -> Result<String> {
        match &self.token_file {
            Some(file) => password::read(file),
            None => variable("DSYNC_TOKEN").ok_or_else(|| {
                usage("the token of the attempt is missing: give it in DSYNC_TOKEN, or in a file with --token-file")
            }),
        }
    }
}

fn millis(time: &std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
