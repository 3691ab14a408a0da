//! Why a request was refused that did not wait, or waited long enough.

use std::time::{Duration, SystemTime};

use dsync_client::Holder;
use redis::{FromRedisValue, Value};

use super::key::Key;
use super::notice;
use crate::duration::short;
use crate::servers::Servers;

/// Says who holds, or what else is in the way. Asks the server where nobody holds.
pub fn reason(servers: &Servers, key: &Key, holders: &[Holder]) -> String {
    notice::holders(holders, 0)
        .or_else(|| obstacle(&info(servers, key)?))
        .unwrap_or_else(|| "others wait for it".into())
}

/// Returns what keeps a key from being granted although nobody holds it. `info` is the answer to INFO.
fn obstacle(info: &Value) -> Option<String> {
    let time = |name| {
        let ms = u64::from_redis_value_ref(field(info, name)?).ok()?;
        (ms > 0).then(|| Duration::from_millis(ms))
    };
    let until = |left: Duration| {
        let moment = humantime::format_rfc3339_seconds(SystemTime::now() + left);
        format!("another {}, until {moment}", short(left))
    };
    let paused = time("paused-ms").map(|left| format!("paused by an operator for {}", until(left)));
    paused.or_else(|| {
        time("delay-left-ms").map(|left| {
            let left = until(left);
            format!("an attempt has failed, and nobody begins for {left}")
        })
    })
}

fn info(servers: &Servers, key: &Key) -> Option<Value> {
    let mut node = servers.first().ok()?;
    node.select(servers.login.db()).ok()?;
    let (family, key) = key.family();
    let command = redis::cmd(&format!("{family}.INFO")).arg(key).to_owned();
    servers.ask_about_key(&mut node, &command).ok()?.ok()
}

/// Returns a field of a map, or of an array of names and values.
fn field<'a>(info: &'a Value, name: &str) -> Option<&'a Value> {
    let is_named =
        |value: &Value| String::from_redis_value_ref(value).is_ok_and(|text| text == name);
    match info {
        Value::Map(pairs) => pairs
            .iter()
            .find(|pair| is_named(&pair.0))
            .map(|pair| &pair.1),
        Value::Array(items) => items
            .chunks_exact(2)
            .find(|pair| is_named(&pair[0]))
            .map(|pair| &pair[1]),
        _ => None,
    }
}
