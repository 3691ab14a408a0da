//! `dsync pause` and `dsync resume`: the stop button of a key, whatever its type is.

use std::io::Write;
use std::time::{Duration, SystemTime};

use serde_json::json;

use crate::args;
use crate::connect::Node;
use crate::duration::{short, short_ms};
use crate::failure::{Failure, Result, Status};
use crate::family::{self, FAMILIES, Family};
use crate::servers::Servers;
use crate::text::printable;

const LONGEST: Duration = Duration::from_secs(30 * 86_400);

pub fn pause(servers: &Servers, options: &args::Pause, out: &mut impl Write) -> Result<()> {
    if options.time > LONGEST {
        let message = format!("TIME must be 1ms to 30d, not {}", short(options.time));
        return Err(Failure::new(Status::Usage, message));
    }
    let mut node = servers.first()?;
    let family = match found(servers, &mut node, &options.key)? {
        Some((name, _)) if options.family.is_some_and(|given| given.name() != name) => {
            let message = format!("'{}' is a {name}: leave out --type", shown(&options.key));
            return Err(Failure::new(Status::Usage, message));
        }
        Some(family) => family,
        None => given(options)?,
    };
    let ms = u64::try_from(options.time.as_millis()).unwrap_or(u64::MAX);
    let before = send(servers, &mut node, family, &options.key, ms)?;
    let until = humantime::format_rfc3339_seconds(SystemTime::now() + options.time);
    let name = shown(&options.key);
    if options.json {
        let told = json!({
            "key": options.key,
            "type": family.0,
            "paused_ms": ms,
            "paused_before_ms": before,
        });
        return Ok(writeln!(out, "{told}")?);
    }
    write!(
        out,
        "paused {} '{name}' for {}, until {until}",
        family.0,
        short(options.time)
    )?;
    match before {
        0 => writeln!(out)?,
        left => writeln!(out, "; it was paused for another {}", short_ms(left))?,
    }
    Ok(())
}

pub fn resume(servers: &Servers, options: &args::Resume, out: &mut impl Write) -> Result<()> {
    let mut node = servers.first()?;
    let name = shown(&options.key);
    let Some(family) = found(servers, &mut node, &options.key)? else {
        let message = format!("there is no key '{name}', so it is not paused");
        return Err(Failure::new(Status::Nothing, message));
    };
    match send(servers, &mut node, family, &options.key, 0)? {
        0 => {
            let message = format!("{} '{name}' was not paused", family.0);
            Err(Failure::new(Status::Nothing, message))
        }
        left if options.json => {
            let told = json!({ "key": options.key, "type": family.0, "paused_before_ms": left });
            Ok(writeln!(out, "{told}")?)
        }
        left => {
            let left = short_ms(left);
            writeln!(
                out,
                "{} '{name}' goes on, {left} before the end of its pause",
                family.0
            )?;
            Ok(())
        }
    }
}

/// Returns the family of the key, if there is such a key.
fn found(servers: &Servers, node: &mut Node, key: &str) -> Result<Option<Family>> {
    let info = |prefix: &str| redis::cmd(&format!("{prefix}.INFO")).arg(key).to_owned();
    let (family, info): (Family, redis::Value) = family::ask(servers, node, key, info)?;
    Ok((info != redis::Value::Nil).then_some(family))
}

/// Returns the family that the options give to a key that does not exist.
fn given(options: &args::Pause) -> Result<Family> {
    let name = options.family.map(args::Type::name);
    let family = FAMILIES.into_iter().find(|family| Some(family.0) == name);
    family.ok_or_else(|| {
        let message = format!(
            "there is no key '{}' yet; to pause it before it is used, say what it will be: --type lock, semaphore, \
             group or once",
            shown(&options.key)
        );
        Failure::new(Status::Nothing, message)
    })
}

/// Returns how many milliseconds were left of the pause before.
fn send(servers: &Servers, node: &mut Node, family: Family, key: &str, ms: u64) -> Result<u64> {
    let mut command = redis::cmd(&format!("{}.PAUSE", family.1));
    command.arg(key).arg(ms);
    let reply = servers.ask_about_key(node, &command)?;
    reply.map_err(|error| Failure::of_server(&node.peer, &error))
}

fn shown(key: &str) -> String {
    printable(key.as_bytes())
}
