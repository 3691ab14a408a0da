//! What the INFO of a key tells, as JSON has it.

use redis::Value;
use serde_json::{Map, Value as Json, json};

use crate::text::with_key;

/// What the rows of `first-lanes` have; all other rows name their fields.
const OF_LANE: [&str; 4] = ["lane", "permits", "waiters", "longest_wait_ms"];

/// Fields by the names that they have in JSON: of a key, or of one of its holders, waiters or lanes.
pub type Info = Map<String, Json>;

/// Returns where the key is, and the fields of the reply; `None` if there is no such key.
pub fn of_reply(server: &str, db: i64, key: &[u8], reply: &Value) -> Option<Info> {
    if *reply == Value::Nil {
        return None;
    }
    let place = with_key(
        json!({ "server": server, "db": db, "key": null }),
        Some(key),
    );
    let mut info = place.as_object()?.clone();
    info.extend(fields(reply));
    Some(info)
}

pub fn number(info: &Info, name: &str) -> Option<u64> {
    info.get(name)?.as_u64()
}

pub fn text<'a>(info: &'a Info, name: &str) -> Option<&'a str> {
    info.get(name)?.as_str()
}

/// Returns the rows of a list, as `first_holders` is one.
pub fn rows<'a>(info: &'a Info, name: &str) -> impl Iterator<Item = &'a Info> {
    let rows = info.get(name).and_then(Json::as_array);
    rows.into_iter().flatten().filter_map(Json::as_object)
}

/// Returns the pairs of a map, or of an array of names and values, as RESP2 has it.
fn fields(map: &Value) -> Info {
    let field = |name: &Value, value: &Value| {
        let name = shown(name).replace('-', "_");
        let value = match value {
            Value::Array(rows) if name == "first_lanes" => rows.iter().map(lane).collect(),
            Value::Array(rows) => rows.iter().map(|row| Json::Object(fields(row))).collect(),
            Value::Int(number) => json!(number),
            Value::Nil => Json::Null,
            other => Json::String(shown(other)),
        };
        (name, value)
    };
    match map {
        Value::Map(pairs) => pairs
            .iter()
            .map(|(name, value)| field(name, value))
            .collect(),
        Value::Array(items) => {
            let pairs = items.chunks_exact(2);
            pairs.map(|pair| field(&pair[0], &pair[1])).collect()
        }
        _ => Map::new(),
    }
}

fn lane(row: &Value) -> Json {
    let Value::Array(values) = row else {
        return Json::Null;
    };
    let pairs = OF_LANE.iter().zip(values).map(|(name, value)| {
        let value = match value {
            Value::Int(number) => json!(number),
            other => Json::String(shown(other)),
        };
        ((*name).to_owned(), value)
    });
    Json::Object(pairs.collect())
}

fn shown(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) => text.clone(),
        other => format!("{other:?}"),
    }
}
