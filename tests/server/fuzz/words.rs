//! Words of the log that stand for other bytes: scripts, DUMP payloads, and a request that is none.

use super::step::FuzzRequest;
use crate::lifecycle::payload::{STRING, sealed};
use crate::support::steps::unix_ms;
use crate::support::*;
use dsync_testkit::resp;

/// A script that carries out the requests in its arguments, separated by `;`, and returns their replies.
const EACH: &str = "local replies, request = {}, {} \
    for _, word in ipairs(ARGV) do \
        if word == ';' then replies[#replies + 1] = redis.pcall(unpack(request)) request = {} \
        else request[#request + 1] = word end \
    end \
    replies[#replies + 1] = redis.pcall(unpack(request)) \
    return replies";

/// The request that has no form of a request: the server replies an error and closes the connection.
pub const BROKEN: &str = "$broken";

/// The bytes of a request.
#[track_caller]
pub fn bytes(words: &[String], server: &Server, database: usize) -> Vec<u8> {
    if words == [BROKEN] {
        return b"*1\r\nbroken\r\n".to_vec();
    }
    let payload = |word: &String| {
        if let Some(key) = word.strip_prefix("$dump:") {
            return dump(server, database, key);
        }
        if let Some(ms) = word.strip_prefix("$busy:") {
            return format!("{} return {{}}", busy_for(ms.parse().unwrap_or(1))).into_bytes();
        }
        match word.as_str() {
            "$each" => EACH.into(),
            "$beyond" => beyond_bounds(),
            word => word.into(),
        }
    };
    resp::request(&words.iter().map(payload).collect::<Vec<_>>())
}

/// The DUMP payload of a key; empty for a missing key, which RESTORE refuses.
#[track_caller]
fn dump(server: &Server, database: usize, key: &str) -> Vec<u8> {
    let mut client = server.connect();
    assert_eq!(client.ask(format!("SELECT {database}")), "OK");
    match call!(client, "DUMP", key) {
        Reply::Bulk(payload) => payload,
        _ => Vec::new(),
    }
}

/// The payload of a lock with a place that is kept for longer than QUEUE allows.
fn beyond_bounds() -> Vec<u8> {
    let now = unix_ms();
    let place = format!(
        "PLACE {} exclusive 30000 60001 NONE {now} 1:p 0:",
        now * 1_000
    );
    let packed = packed("lock", &[&place]);
    // A value of a module; the number of dsync's locks, with the version of their encoding.
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let index = |letter| LETTERS.iter().position(|other| *other == letter);
    let number = b"dsynclock".iter().fold(0, |number: u64, letter| {
        number << 6 | index(*letter).expect("a letter of such names") as u64
    });
    let mut body = vec![7, 0x81];
    body.extend_from_slice(&(number << 10 | 2).to_be_bytes());
    body.extend_from_slice(&[STRING, 0x80]);
    body.extend_from_slice(&(packed.len() as u32).to_be_bytes());
    body.extend_from_slice(&packed);
    body.push(0);
    // The version of Redis 7.0, which all servers read.
    sealed(&body, [10, 0])
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
