//! `dsync pause` and `dsync resume`: the stop button of a key, whatever its type is.

use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, SystemTime};

use redis::Value;
use serde_json::json;

use crate::args;
use crate::connect::Node;
use crate::duration::{short, short_ms};
use crate::failure::{Failure, Result, Status, usage};
use crate::family::Family;
use crate::servers::Servers;
use crate::text::{print, quoted, with_key};

const LONGEST: Duration = Duration::from_secs(30 * 86_400);

pub fn pause(servers: &Servers, options: &args::Pause, out: &mut impl Write) -> Result<()> {
    let (key, time) = (options.key.as_bytes(), options.time);
    if time > LONGEST {
        let time = short(time);
        return Err(usage(format!("TIME must be 1ms to 30d, not {time}")));
    }
    let mut node = servers.first()?;
    let name = quoted(key);
    let family = match (found(servers, &mut node, key)?, options.family) {
        (Some(family), Some(given)) if family != given => {
            let family = family.name();
            return Err(usage(format!("{name} is a {family}: leave out --type")));
        }
        (Some(family), _) | (None, Some(family)) => family,
        (None, None) => {
            let message = format!(
                "there is no key {name} yet; to pause it before it is used, say what it will be: --type lock, semaphore, \
                 group or once"
            );
            return Err(Failure::new(Status::Nothing, message));
        }
    };
    let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let before = send(servers, &mut node, family, key, ms)?;
    let told = json!({
        "key": null,
        "type": family.name(),
        "paused_ms": ms,
        "paused_before_ms": before,
    });
    let until = humantime::format_rfc3339_seconds(SystemTime::now() + time);
    let (family, time) = (family.name(), short(time));
    let mut text = format!("paused {family} {name} for {time}, until {until}");
    if before > 0 {
        text.push_str(&format!("; it was paused for another {}", short_ms(before)));
    }
    Ok(print(out, options.json, &with_key(told, Some(key)), &text)?)
}

pub fn resume(servers: &Servers, options: &args::Resume, out: &mut impl Write) -> Result<()> {
    let key = options.key.as_bytes();
    let mut node = servers.first()?;
    let name = quoted(key);
    let Some(family) = found(servers, &mut node, key)? else {
        let message = format!("there is no key {name}, so it is not paused");
        return Err(Failure::new(Status::Nothing, message));
    };
    let before = send(servers, &mut node, family, key, 0)?;
    let family = family.name();
    if before == 0 {
        let message = format!("{family} {name} was not paused");
        return Err(Failure::new(Status::Nothing, message));
    }
    let told = json!({ "key": null, "type": family, "paused_before_ms": before });
    let left = short_ms(before);
    let text = format!("{family} {name} goes on, {left} before the end of its pause");
    Ok(print(out, options.json, &with_key(told, Some(key)), &text)?)
}

/// Returns the family of the key, if there is such a key.
fn found(servers: &Servers, node: &mut Node, key: &[u8]) -> Result<Option<Family>> {
    let info = |family: Family| family.command("INFO", key);
    let (family, info): (Family, Value) = servers.ask_about_any_type(node, key, info)?;
    Ok((info != Value::Nil).then_some(family))
}

/// Returns how many milliseconds were left of the pause before.
fn send(servers: &Servers, node: &mut Node, family: Family, key: &[u8], ms: u64) -> Result<u64> {
    let mut command = family.command("PAUSE", key);
    let reply = servers.ask_about_key(node, command.arg(ms))?;
    reply.map_err(|error| Failure::of_server(&node.peer, &error))
}
