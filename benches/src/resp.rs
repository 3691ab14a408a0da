//! RESP2, the protocol of Redis and Valkey: commands are written and replies are read without copying.
//!
//! A reply borrows from the connection's buffer, so reading one costs no allocation unless it is an array.
//! RESP3 is absent: every command that is measured answers the same in both.

use std::io::Write;

/// One reply, borrowed from the bytes it was read from.
#[derive(Debug, PartialEq)]
pub enum Reply<'a> {
    Simple(&'a [u8]),
    Error(&'a [u8]),
    Integer(i64),
    Bulk(&'a [u8]),
    Nil,
    Array(Vec<Reply<'a>>),
}

/// The bytes are no RESP2 reply.
#[derive(Debug, PartialEq)]
pub struct Malformed;

impl<'a> Reply<'a> {
    pub fn is_ok(&self) -> bool {
        *self == Self::Simple(b"OK")
    }

    pub fn integer(&self) -> Option<i64> {
        match self {
            Self::Integer(number) => Some(*number),
            _ => None,
        }
    }

    pub fn bulk(&self) -> Option<&'a [u8]> {
        match self {
            Self::Bulk(bytes) => Some(bytes),
            _ => None,
        }
    }

    pub fn array(&self) -> Option<&[Reply<'a>]> {
        match self {
            Self::Array(items) => Some(items),
            _ => None,
        }
    }
}

impl std::fmt::Display for Reply<'_> {
    /// For messages about a wrong reply: text as text, cut where it is long.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text =
            |bytes: &[u8]| -> String { String::from_utf8_lossy(bytes).chars().take(200).collect() };
        match self {
            Self::Simple(bytes) => write!(f, "+{}", text(bytes)),
            Self::Error(bytes) => write!(f, "-{}", text(bytes)),
            Self::Integer(number) => write!(f, ":{number}"),
            Self::Bulk(bytes) => write!(f, "\"{}\"", text(bytes)),
            Self::Nil => write!(f, "nil"),
            Self::Array(items) => {
                write!(f, "[")?;
                for (at, item) in items.iter().take(8).enumerate() {
                    write!(f, "{}{item}", if at == 0 { "" } else { ", " })?;
                }
                write!(f, "]")
            }
        }
    }
}

/// Appends one command.
pub fn write_command(out: &mut Vec<u8>, words: &[&[u8]]) {
    // Writing to a Vec cannot fail.
    let _ = write!(out, "*{}\r\n", words.len());
    for word in words {
        let _ = write!(out, "${}\r\n", word.len());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// Returns the first reply and its length in bytes, or None where it has not arrived completely.
pub fn parse(bytes: &[u8]) -> Result<Option<(Reply<'_>, usize)>, Malformed> {
    let Some((line, after)) = line(bytes) else {
        return Ok(None);
    };
    let (&kind, rest) = line.split_first().ok_or(Malformed)?;
    let reply = match kind {
        b'+' => Reply::Simple(rest),
        b'-' => Reply::Error(rest),
        b':' => Reply::Integer(number(rest)?),
        b'$' | b'*' if rest == b"-1" => Reply::Nil,
        b'$' => {
            let length = usize::try_from(number(rest)?).map_err(|_| Malformed)?;
            let Some(body) = bytes.get(after..after + length + 2) else {
                return Ok(None);
            };
            let text = body.strip_suffix(b"\r\n").ok_or(Malformed)?;
            return Ok(Some((Reply::Bulk(text), after + length + 2)));
        }
        b'*' => {
            let length = usize::try_from(number(rest)?).map_err(|_| Malformed)?;
            let mut items = Vec::with_capacity(length.min(1024));
            let mut at = after;
            for _ in 0..length {
                let Some((item, used)) = parse(&bytes[at..])? else {
                    return Ok(None);
                };
                items.push(item);
                at += used;
            }
            return Ok(Some((Reply::Array(items), at)));
        }
        _ => return Err(Malformed),
    };
    Ok(Some((reply, after)))
}

/// The first line without its end, and where the next one begins.
fn line(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let end = bytes.iter().position(|&byte| byte == b'\r')?;
    (bytes.get(end + 1) == Some(&b'\n')).then_some((&bytes[..end], end + 2))
}

fn number(digits: &[u8]) -> Result<i64, Malformed> {
    std::str::from_utf8(digits)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or(Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_reads_every_kind_of_reply() {
        let cases: [(&[u8], Reply<'_>); 8] = [
            (b"+OK\r\n", Reply::Simple(b"OK")),
            (b"-ERR no\r\n", Reply::Error(b"ERR no")),
            (b":-7\r\n", Reply::Integer(-7)),
            (b"$3\r\na\r\n\r\n", Reply::Bulk(b"a\r\n")),
            (b"$0\r\n\r\n", Reply::Bulk(b"")),
            (b"$-1\r\n", Reply::Nil),
            (b"*-1\r\n", Reply::Nil),
            (
                b"*2\r\n$1\r\nt\r\n:5\r\n",
                Reply::Array(vec![Reply::Bulk(b"t"), Reply::Integer(5)]),
            ),
        ];
        for (bytes, reply) in cases {
            assert_eq!(parse(bytes), Ok(Some((reply, bytes.len()))));
        }
    }

    #[test]
    fn parse_waits_for_every_missing_byte() {
        let whole = b"*2\r\n$4\r\nabcd\r\n*1\r\n:5\r\n";
        for length in 0..whole.len() {
            assert_eq!(parse(&whole[..length]), Ok(None), "{length} bytes");
        }
        assert!(matches!(parse(whole), Ok(Some((_, used))) if used == whole.len()));
    }

    #[test]
    fn parse_leaves_the_next_reply() {
        assert_eq!(parse(b":1\r\n:2\r\n"), Ok(Some((Reply::Integer(1), 4))));
    }

    #[test]
    fn parse_refuses_what_is_no_reply() {
        for bytes in [&b"?1\r\n"[..], b"\r\n", b":x\r\n", b"$-2\r\n", b"$1\r\nabc"] {
            assert_eq!(parse(bytes), Err(Malformed), "{bytes:?}");
        }
    }

    #[test]
    fn write_command_writes_what_servers_read() {
        let mut out = Vec::new();
        write_command(&mut out, &[b"GET", b"k"]);
        assert_eq!(out, b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n");
    }
}
