//! Why a request was refused that did not wait, or waited long enough.

use std::time::{Duration, SystemTime};

use dsync_client::Holder;

use super::key::Key;
use super::notice;
use crate::duration::short;
use crate::info::{self, Info, number};
use crate::servers::Servers;

/// Says who holds, or what else is in the way. Asks the server where nobody holds.
pub fn reason(servers: &Servers, key: &Key, holders: &[Holder]) -> String {
    notice::holders(holders, 0)
        .or_else(|| obstacle(&info(servers, key)?))
        .unwrap_or_else(|| "others wait for it".into())
}

/// Returns what keeps a key from being granted although nobody holds it.
fn obstacle(info: &Info) -> Option<String> {
    let time = |name| {
        let ms = number(info, name).filter(|ms| *ms > 0)?;
        let left = Duration::from_millis(ms);
        let moment = humantime::format_rfc3339_seconds(SystemTime::now() + left);
        Some(format!("another {}, until {moment}", short(left)))
    };
    let paused = time("paused_ms").map(|left| format!("paused by an operator for {left}"));
    paused.or_else(|| {
        time("delay_left_ms")
            .map(|left| format!("an attempt has failed, and nobody begins for {left}"))
    })
}

fn info(servers: &Servers, key: &Key) -> Option<Info> {
    let mut node = servers.first().ok()?;
    let (family, key) = key.family();
    let command = family.command("INFO", key.as_bytes());
    let reply = servers.ask_about_key(&mut node, &command).ok()?.ok()?;
    info::of_reply(node.name(), servers.login.db(), key.as_bytes(), &reply)
}
