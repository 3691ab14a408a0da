//! RESP2 and RESP3 as bytes: writes requests and parses replies.
//!
//! [`parse`] takes nothing from an incomplete reply, so bytes that arrived before a timeout are not lost. The crate
//! `redis` would not do: its connection cannot be used after a timeout, and tests must be able to see a second reply, a
//! missing reply and the raw replication stream. Bytes that are not RESP panic.

use super::reply::Reply;

/// A request, as an array of bulk strings.
pub fn request<A: AsRef<[u8]>>(arguments: &[A]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        let argument = argument.as_ref();
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// The first whole reply in `bytes` and how many bytes it took; `None` while it is incomplete.
pub fn parse(bytes: &[u8]) -> Option<(Reply, usize)> {
    let mut cursor = Cursor { bytes, at: 0 };
    let reply = cursor.reply()?;
    Some((reply, cursor.at))
}

/// The first line in `bytes` without its `\r\n`, and how many bytes it took.
pub fn line(bytes: &[u8]) -> Option<(String, usize)> {
    let length = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
    Some((text, length + 2))
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn reply(&mut self) -> Option<Reply> {
        let kind = *self.bytes.get(self.at)?;
        let (text, used) = line(&self.bytes[self.at + 1..])?;
        self.at += 1 + used;
        Some(match kind {
            b'+' | b'(' => Reply::Simple(text),
            b'-' => Reply::Error(text),
            b':' => Reply::Int(number(&text)),
            b',' => Reply::Double(
                text.parse()
                    .unwrap_or_else(|_| panic!("not a double in RESP: {text:?}")),
            ),
            b'#' => Reply::Bool(text == "t"),
            b'_' => Reply::Nil,
            b'$' => self.sized(&text, |bytes| Reply::Bulk(bytes.to_vec()))?,
            // The three letters of the format and a colon stand before the text.
            b'=' => self.sized(&text, |bytes| Reply::Bulk(bytes[4..].to_vec()))?,
            b'!' => self.sized(&text, |bytes| {
                Reply::Error(String::from_utf8_lossy(bytes).into_owned())
            })?,
            b'*' if number(&text) < 0 => Reply::Nil,
            b'*' => Reply::Array(self.replies(&text)?),
            b'~' => Reply::Set(self.replies(&text)?),
            b'>' => Reply::Push(self.replies(&text)?),
            b'%' => Reply::Map(self.pairs(&text)?),
            b'|' => {
                self.pairs(&text)?;
                self.reply()?
            }
            other => panic!(
                "not RESP: a reply begins with {:?}, then {text:?}",
                char::from(other)
            ),
        })
    }

    /// The payload of a length-prefixed type; a negative length is RESP2's null.
    fn sized(&mut self, length: &str, make: impl FnOnce(&[u8]) -> Reply) -> Option<Reply> {
        let Ok(length) = usize::try_from(number(length)) else {
            return Some(Reply::Nil);
        };
        let payload = self.bytes.get(self.at..self.at + length)?;
        let end = self.bytes.get(self.at + length..self.at + length + 2)?;
        assert_eq!(end, b"\r\n", "not RESP: a string longer than it said");
        self.at += length + 2;
        Some(make(payload))
    }

    fn replies(&mut self, count: &str) -> Option<Vec<Reply>> {
        (0..number(count)).map(|_| self.reply()).collect()
    }

    fn pairs(&mut self, count: &str) -> Option<Vec<(Reply, Reply)>> {
        (0..number(count))
            .map(|_| Some((self.reply()?, self.reply()?)))
            .collect()
    }
}

fn number(text: &str) -> i64 {
    text.parse()
        .unwrap_or_else(|_| panic!("not an integer in RESP: {text:?}"))
}

#[test]
fn parse_takes_nothing_from_an_incomplete_reply() {
    let whole = b"*4\r\n$2\r\nab\r\n:-7\r\n%1\r\n+k\r\n#t\r\n*-1\r\n";
    for cut in 0..whole.len() {
        assert_eq!(parse(&whole[..cut]), None, "cut at {cut}");
    }
    let map = Reply::Map(vec![(Reply::Simple("k".into()), Reply::Bool(true))]);
    let reply = Reply::Array(vec![
        Reply::Bulk(b"ab".into()),
        Reply::Int(-7),
        map,
        Reply::Nil,
    ]);
    assert_eq!(parse(whole), Some((reply, whole.len())));
}
