//! What the INFO of a key tells, as JSON has it.

use redis::Value;
use serde_json::{Map, Value as Json, json};

/// What the rows of `first-lanes` have; all other rows name their fields.
const OF_LANE: [&str; 4] = ["lane", "permits", "waiters", "longest_wait_ms"];

/// Returns where the key is, and the fields of the reply; `None` if there is no such key.
pub fn of_reply(server: &str, db: i64, key: &[u8], reply: &Value) -> Option<Map<String, Json>> {
    if *reply == Value::Nil {
        return None;
    }
    let mut info = Map::new();
    info.insert("server".into(), json!(server));
    info.insert("db".into(), json!(db));
    info.insert("key".into(), json!(String::from_utf8_lossy(key)));
    info.extend(fields(reply));
    Some(info)
}

/// Returns the pairs of a map, or of an array of names and values, as RESP2 has it.
fn fields(map: &Value) -> Map<String, Json> {
    let field = |name: &Value, value: &Value| {
        let name = text(name).replace('-', "_");
        let value = match value {
            Value::Array(rows) if name == "first_lanes" => rows.iter().map(lane).collect(),
            Value::Array(rows) => rows.iter().map(|row| Json::Object(fields(row))).collect(),
            Value::Int(number) => json!(number),
            Value::Nil => Json::Null,
            other => Json::String(text(other)),
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
            other => Json::String(text(other)),
        };
        ((*name).to_owned(), value)
    });
    Json::Object(pairs.collect())
}

fn text(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) => text.clone(),
        other => format!("{other:?}"),
    }
}
