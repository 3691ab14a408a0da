//! A reply of a server, and methods to read it.
//!
//! A method that does not fit the reply panics at the test's line with the reply itself, so a failed test shows what
//! the server sent. RESP2 and RESP3 read alike: [`Reply::field`] reads a RESP3 map and a RESP2 field/value array.

use std::fmt;

use crate::resp::{self, Frame};

/// One reply of RESP2 or RESP3: a [`Frame`] that owns its bytes.
#[derive(Clone, PartialEq)]
pub enum Reply {
    Nil,
    Int(i64),
    Double(f64),
    Bool(bool),
    Simple(String),
    Bulk(Vec<u8>),
    Error(String),
    Array(Vec<Reply>),
    Set(Vec<Reply>),
    Push(Vec<Reply>),
    Map(Vec<(Reply, Reply)>),
}

/// The first whole reply in `bytes` and how many bytes it took; `None` while it is incomplete. Bytes that are not RESP
/// panic.
#[track_caller]
pub fn parse_reply(bytes: &[u8]) -> Option<(Reply, usize)> {
    match resp::parse(bytes) {
        Ok(parsed) => parsed.map(|(frame, used)| (Reply::from(frame), used)),
        Err(resp::Malformed) => panic!("not RESP: {:?}", bytes.escape_ascii().to_string()),
    }
}

impl From<Frame<'_>> for Reply {
    fn from(frame: Frame<'_>) -> Reply {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let all = |items: Vec<Frame<'_>>| items.into_iter().map(Reply::from).collect();
        match frame {
            Frame::Nil => Reply::Nil,
            Frame::Int(number) => Reply::Int(number),
            Frame::Double(number) => Reply::Double(number),
            Frame::Bool(truth) => Reply::Bool(truth),
            Frame::Simple(bytes) => Reply::Simple(text(bytes)),
            Frame::Bulk(bytes) => Reply::Bulk(bytes.to_vec()),
            Frame::Error(bytes) => Reply::Error(text(bytes)),
            Frame::Array(items) => Reply::Array(all(items)),
            Frame::Set(items) => Reply::Set(all(items)),
            Frame::Push(items) => Reply::Push(all(items)),
            Frame::Map(pairs) => {
                let owned = |(name, value)| (Reply::from(name), Reply::from(value));
                Reply::Map(pairs.into_iter().map(owned).collect())
            }
        }
    }
}

impl Reply {
    pub fn is_nil(&self) -> bool {
        *self == Reply::Nil
    }

    pub fn is_error(&self) -> bool {
        matches!(self, Reply::Error(_))
    }

    /// The text of an error, with its code.
    #[track_caller]
    pub fn error(&self) -> &str {
        match self {
            Reply::Error(text) => text,
            other => panic!("expected an error, received {other:?}"),
        }
    }

    #[track_caller]
    pub fn as_int(&self) -> i64 {
        match self {
            Reply::Int(number) => *number,
            other => panic!("expected an integer, received {other:?}"),
        }
    }

    #[track_caller]
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Reply::Bulk(bytes) => bytes,
            Reply::Simple(text) => text.as_bytes(),
            other => panic!("expected a string, received {other:?}"),
        }
    }

    #[track_caller]
    pub fn as_str(&self) -> &str {
        match std::str::from_utf8(self.as_bytes()) {
            Ok(text) => text,
            Err(_) => panic!("expected UTF-8, received {self:?}"),
        }
    }

    /// The elements of an array, a set or a push.
    #[track_caller]
    pub fn as_array(&self) -> &[Reply] {
        match self {
            Reply::Array(items) | Reply::Set(items) | Reply::Push(items) => items,
            other => panic!("expected an array, received {other:?}"),
        }
    }

    /// Reads `[token, fence]`.
    #[track_caller]
    pub fn grant(&self) -> (String, u64) {
        match self {
            Reply::Array(items) => match items.as_slice() {
                [token @ Reply::Bulk(_), Reply::Int(fence)] if *fence > 0 => {
                    (token.as_str().to_owned(), fence.unsigned_abs())
                }
                _ => panic!("expected [token, fence], received {self:?}"),
            },
            other => panic!("expected [token, fence], received {other:?}"),
        }
    }

    /// The value of a field; panics where there is none.
    #[track_caller]
    pub fn field(&self, name: &str) -> &Reply {
        match self.find_field(name) {
            Some(value) => value,
            None => panic!("no field {name:?} in {self:?}"),
        }
    }

    /// The value of a field, if the reply has it.
    #[track_caller]
    pub fn find_field(&self, name: &str) -> Option<&Reply> {
        match self {
            Reply::Map(pairs) => pairs
                .iter()
                .find(|(field, _)| *field == name)
                .map(|(_, value)| value),
            Reply::Array(items) if items.len() % 2 == 0 => items
                .chunks_exact(2)
                .find(|pair| pair[0] == name)
                .map(|pair| &pair[1]),
            other => panic!("expected a map with the field {name:?}, received {other:?}"),
        }
    }
}

impl PartialEq<i64> for Reply {
    fn eq(&self, number: &i64) -> bool {
        matches!(self, Reply::Int(mine) if mine == number)
    }
}

/// True for bulk and simple strings; an error is never equal to a text.
impl PartialEq<str> for Reply {
    fn eq(&self, text: &str) -> bool {
        match self {
            Reply::Bulk(bytes) => bytes == text.as_bytes(),
            Reply::Simple(mine) => mine == text,
            _ => false,
        }
    }
}

impl PartialEq<&str> for Reply {
    fn eq(&self, text: &&str) -> bool {
        *self == **text
    }
}

/// For messages: strings as text with odd bytes escaped, `+` and `-` before simple strings and errors.
impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reply::Nil => f.write_str("nil"),
            Reply::Int(number) => write!(f, "{number}"),
            Reply::Double(number) => write!(f, "{number:?}"),
            Reply::Bool(truth) => write!(f, "{truth}"),
            Reply::Simple(text) => write!(f, "+{text}"),
            Reply::Bulk(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Reply::Error(text) => write!(f, "-{text}"),
            Reply::Array(items) => f.debug_list().entries(items).finish(),
            Reply::Set(items) => f.debug_set().entries(items).finish(),
            Reply::Push(items) => {
                f.write_str(">")?;
                f.debug_list().entries(items).finish()
            }
            Reply::Map(pairs) => f
                .debug_map()
                .entries(pairs.iter().map(|(field, value)| (field, value)))
                .finish(),
        }
    }
}

#[track_caller]
pub(crate) fn expect_ok(reply: &Reply) {
    assert_eq!(*reply, "OK", "{reply:?}");
}
