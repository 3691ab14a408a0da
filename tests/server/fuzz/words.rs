//! Words of the log that stand for longer arguments: scripts, and DUMP payloads.

use super::step::FuzzRequest;
use crate::support::*;

/// A script that carries out the requests in its arguments, separated by `;`, and returns their replies.
const EACH: &str = "local replies, request = {}, {} \
    for _, word in ipairs(ARGV) do \
        if word == ';' then replies[#replies + 1] = redis.pcall(unpack(request)) request = {} \
        else request[#request + 1] = word end \
    end \
    replies[#replies + 1] = redis.pcall(unpack(request)) \
    return replies";

/// The bytes that are sent for each word.
#[track_caller]
pub fn payloads(words: &[String], server: &Server, database: usize) -> Vec<Vec<u8>> {
    let payload = |word: &String| {
        if let Some(key) = word.strip_prefix("$dump:") {
            return dump(server, database, key);
        }
        if let Some(ms) = word.strip_prefix("$busy:") {
            return format!("{} return {{}}", busy_for(ms.parse().unwrap_or(1))).into_bytes();
        }
        match word.as_str() {
            "$each" => EACH.into(),
            word => word.into(),
        }
    };
    words.iter().map(payload).collect()
}

/// The DUMP payload of a key; empty for a missing key, which RESTORE refuses.
#[track_caller]
fn dump(server: &Server, database: usize, key: &str) -> Vec<u8> {
    let mut client = server.connect();
    assert_eq!(call!(client, "SELECT", database), "OK");
    match call!(client, "DUMP", key) {
        Reply::Bulk(payload) => payload,
        _ => Vec::new(),
    }
}

/// The requests that `EVAL $each numkeys key … request ; request …` carries out.
pub fn requests_of_script(eval: &FuzzRequest) -> Vec<FuzzRequest> {
    if eval.words.get(1).is_none_or(|script| script != "$each") {
        return Vec::new();
    }
    let keys: usize = eval.words.get(2).and_then(|n| n.parse().ok()).unwrap_or(0);
    let arguments = eval.words.get(3 + keys..).unwrap_or_default();
    let requests = arguments.split(|word| word == ";");
    let requests = requests.map(|words| FuzzRequest {
        words: words.to_vec(),
        odd: eval.odd,
    });
    requests.collect()
}
