//! RESP2 and RESP3 as bytes: writes requests and parses replies.
//!
//! [`parse`] takes nothing from an incomplete reply, so bytes that arrived before a timeout are not lost. A [`Frame`]
//! borrows from the connection's buffer, so reading one costs no allocation unless it is an array: the benchmark's
//! client must keep a server's pipe full. The crate `redis` would not do: its connection cannot be used after a
//! timeout, and tests must be able to see a second reply, a missing reply and the raw replication stream.

use std::fmt;
use std::io::Write;

/// One reply, borrowed from the bytes it was read from. Null bulk strings, null arrays and RESP3's null are all
/// [`Frame::Nil`]; verbatim strings are bulk strings, big numbers are simple strings, attributes are left out.
#[derive(Debug, PartialEq)]
pub enum Frame<'a> {
    Nil,
    Int(i64),
    Double(f64),
    Bool(bool),
    Simple(&'a [u8]),
    Bulk(&'a [u8]),
    Error(&'a [u8]),
    Array(Vec<Frame<'a>>),
    Set(Vec<Frame<'a>>),
    Push(Vec<Frame<'a>>),
    Map(Vec<(Frame<'a>, Frame<'a>)>),
}

/// The bytes are no reply.
#[derive(Debug, PartialEq)]
pub struct Malformed;

impl<'a> Frame<'a> {
    pub fn is_ok(&self) -> bool {
        *self == Self::Simple(b"OK")
    }

    pub fn integer(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            _ => None,
        }
    }

    pub fn bulk(&self) -> Option<&'a [u8]> {
        match self {
            Self::Bulk(bytes) => Some(bytes),
            _ => None,
        }
    }

    pub fn array(&self) -> Option<&[Frame<'a>]> {
        match self {
            Self::Array(items) => Some(items),
            _ => None,
        }
    }
}

/// A request, as an array of bulk strings.
pub fn request<A: AsRef<[u8]>>(arguments: &[A]) -> Vec<u8> {
    let words: Vec<&[u8]> = arguments.iter().map(AsRef::as_ref).collect();
    let mut bytes = Vec::new();
    write_request(&mut bytes, &words);
    bytes
}

/// Appends a request.
pub fn write_request(out: &mut Vec<u8>, words: &[&[u8]]) {
    // Writing to a Vec cannot fail.
    let _ = write!(out, "*{}\r\n", words.len());
    for word in words {
        let _ = write!(out, "${}\r\n", word.len());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// The first whole reply in `bytes` and how many bytes it took; `None` while it is incomplete.
pub fn parse(bytes: &[u8]) -> Result<Option<(Frame<'_>, usize)>, Malformed> {
    let mut cursor = Cursor { bytes, at: 0 };
    match cursor.frame() {
        Ok(frame) => Ok(Some((frame, cursor.at))),
        Err(Stop::Incomplete) => Ok(None),
        Err(Stop::Malformed) => Err(Malformed),
    }
}

/// The first line in `bytes` without its `\r\n`, and how many bytes it took.
pub fn line(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let end = bytes.iter().position(|&byte| byte == b'\r')?;
    (bytes.get(end + 1) == Some(&b'\n')).then_some((&bytes[..end], end + 2))
}

enum Stop {
    Incomplete,
    Malformed,
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn frame(&mut self) -> Result<Frame<'a>, Stop> {
        let (line, used) = line(&self.bytes[self.at..]).ok_or(Stop::Incomplete)?;
        let (kind, rest) = line.split_first().ok_or(Stop::Malformed)?;
        self.at += used;
        Ok(match kind {
            b'+' | b'(' => Frame::Simple(rest),
            b'-' => Frame::Error(rest),
            b':' => Frame::Int(number(rest)?),
            b',' => Frame::Double(number(rest)?),
            b'#' => Frame::Bool(rest == b"t"),
            b'_' => Frame::Nil,
            b'$' | b'*' if rest == b"-1" => Frame::Nil,
            b'$' => Frame::Bulk(self.sized(rest)?),
            // The three letters of the format and a colon stand before the text.
            b'=' => Frame::Bulk(self.sized(rest)?.get(4..).ok_or(Stop::Malformed)?),
            b'!' => Frame::Error(self.sized(rest)?),
            b'*' => Frame::Array(self.frames(rest)?),
            b'~' => Frame::Set(self.frames(rest)?),
            b'>' => Frame::Push(self.frames(rest)?),
            b'%' => Frame::Map(self.pairs(rest)?),
            b'|' => {
                self.pairs(rest)?;
                self.frame()?
            }
            _ => return Err(Stop::Malformed),
        })
    }

    fn sized(&mut self, length: &[u8]) -> Result<&'a [u8], Stop> {
        let length: usize = number(length)?;
        let body = self.bytes.get(self.at..self.at + length + 2);
        let text = body.ok_or(Stop::Incomplete)?.strip_suffix(b"\r\n");
        self.at += length + 2;
        text.ok_or(Stop::Malformed)
    }

    fn frames(&mut self, count: &[u8]) -> Result<Vec<Frame<'a>>, Stop> {
        let count: usize = number(count)?;
        let mut frames = Vec::with_capacity(count.min(1024));
        for _ in 0..count {
            frames.push(self.frame()?);
        }
        Ok(frames)
    }

    fn pairs(&mut self, count: &[u8]) -> Result<Vec<(Frame<'a>, Frame<'a>)>, Stop> {
        let count: usize = number(count)?;
        (0..count)
            .map(|_| Ok((self.frame()?, self.frame()?)))
            .collect()
    }
}

fn number<N: std::str::FromStr>(digits: &[u8]) -> Result<N, Stop> {
    std::str::from_utf8(digits)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or(Stop::Malformed)
}

/// For messages about a wrong reply: text as text, cut where it is long.
impl fmt::Display for Frame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text =
            |bytes: &[u8]| -> String { String::from_utf8_lossy(bytes).chars().take(200).collect() };
        match self {
            Self::Simple(bytes) => write!(f, "+{}", text(bytes)),
            Self::Error(bytes) => write!(f, "-{}", text(bytes)),
            Self::Int(number) => write!(f, ":{number}"),
            Self::Bulk(bytes) => write!(f, "\"{}\"", text(bytes)),
            Self::Nil => write!(f, "nil"),
            Self::Array(items) => {
                write!(f, "[")?;
                for (at, item) in items.iter().take(8).enumerate() {
                    write!(f, "{}{item}", if at == 0 { "" } else { ", " })?;
                }
                write!(f, "]")
            }
            other => write!(f, "{other:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_reads_every_kind_of_reply() {
        let cases: [(&[u8], Frame<'_>); 17] = [
            (b"+OK\r\n", Frame::Simple(b"OK")),
            (b"-ERR no\r\n", Frame::Error(b"ERR no")),
            (b":-7\r\n", Frame::Int(-7)),
            (b"$3\r\na\r\n\r\n", Frame::Bulk(b"a\r\n")),
            (b"$0\r\n\r\n", Frame::Bulk(b"")),
            (b"$-1\r\n", Frame::Nil),
            (b"*-1\r\n", Frame::Nil),
            (b"_\r\n", Frame::Nil),
            (b",1.5\r\n", Frame::Double(1.5)),
            (b"#f\r\n", Frame::Bool(false)),
            (b"(12\r\n", Frame::Simple(b"12")),
            (b"=6\r\ntxt:ab\r\n", Frame::Bulk(b"ab")),
            (b"!2\r\nno\r\n", Frame::Error(b"no")),
            (b"~1\r\n:1\r\n", Frame::Set(vec![Frame::Int(1)])),
            (b">1\r\n:1\r\n", Frame::Push(vec![Frame::Int(1)])),
            (b"|1\r\n+a\r\n:1\r\n:2\r\n", Frame::Int(2)),
            (
                b"*2\r\n$1\r\nt\r\n:5\r\n",
                Frame::Array(vec![Frame::Bulk(b"t"), Frame::Int(5)]),
            ),
        ];
        for (bytes, frame) in cases {
            assert_eq!(parse(bytes), Ok(Some((frame, bytes.len()))));
        }
    }

    #[test]
    fn parse_takes_nothing_from_an_incomplete_reply() {
        let whole = b"*4\r\n$2\r\nab\r\n:-7\r\n%1\r\n+k\r\n#t\r\n*-1\r\n";
        for cut in 0..whole.len() {
            assert_eq!(parse(&whole[..cut]), Ok(None), "cut at {cut}");
        }
        let map = Frame::Map(vec![(Frame::Simple(b"k"), Frame::Bool(true))]);
        let items = vec![Frame::Bulk(b"ab"), Frame::Int(-7), map, Frame::Nil];
        let reply = Frame::Array(items);
        assert_eq!(parse(whole), Ok(Some((reply, whole.len()))));
    }

    #[test]
    fn parse_leaves_the_next_reply() {
        assert_eq!(parse(b":1\r\n:2\r\n"), Ok(Some((Frame::Int(1), 4))));
    }

    #[test]
    fn parse_refuses_what_is_no_reply() {
        for bytes in [&b"?1\r\n"[..], b"\r\n", b":x\r\n", b"$-2\r\n", b"$1\r\nabc"] {
            assert_eq!(parse(bytes), Err(Malformed), "{bytes:?}");
        }
    }

    #[test]
    fn request_is_what_servers_read() {
        assert_eq!(request(&["GET", "k"]), b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n");
    }
}
