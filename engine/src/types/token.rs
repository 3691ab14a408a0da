//! Tokens: the secret names of holds, and how they are stored, compared and spelled.

use std::cmp::Ordering;
use std::fmt;

use crate::short_bytes::ShortBytes;

/// The secret name of a hold: 1 to 128 bytes.
///
/// The tokens that the server makes are version-4 UUIDs in lower case. Every UUID written that way is stored in 16
/// bytes and spelled again exactly; any other text is stored as it is.
#[derive(Clone, PartialEq, Eq)]
pub enum Token {
    Uuid([u8; 16]),
    Text(ShortBytes),
}

const _: () = assert!(size_of::<Token>() == size_of::<ShortBytes>());

/// A token that belongs to somebody else.
#[derive(Clone, Copy)]
pub enum TokenView<'a> {
    Uuid([u8; 16]),
    Text(&'a [u8]),
}

impl<'a> TokenView<'a> {
    /// Returns the token with this text, if its length is legal.
    pub fn parse(text: &'a [u8]) -> Option<TokenView<'a>> {
        if text.is_empty() || text.len() > Token::MAX_LEN {
            return None;
        }
        // In capitals it is the same UUID but another token, because tokens are compared as texts. Without an early end
        // the compiler looks at many bytes at once.
        let any_capital = |any, byte: &u8| any | byte.is_ascii_uppercase();
        if text.len() == uuid::fmt::Hyphenated::LENGTH
            && !text.iter().fold(false, any_capital)
            && let Ok(id) = uuid::Uuid::try_parse_ascii(text)
        {
            return Some(TokenView::Uuid(id.into_bytes()));
        }
        Some(TokenView::Text(text))
    }
}

impl<'a> From<&'a Token> for TokenView<'a> {
    fn from(token: &'a Token) -> Self {
        match token {
            Token::Uuid(uuid) => TokenView::Uuid(*uuid),
            Token::Text(text) => TokenView::Text(text.as_bytes()),
        }
    }
}

impl From<TokenView<'_>> for Token {
    fn from(token: TokenView<'_>) -> Self {
        match token {
            TokenView::Uuid(uuid) => Token::Uuid(uuid),
            TokenView::Text(text) => Token::Text(text.into()),
        }
    }
}

/// UUIDs first. They are compared as numbers, which is faster than as arrays, with the first byte as the lowest, which is
/// faster than in the order of their texts. No answer depends on this order.
impl Ord for Token {
    fn cmp(&self, other: &Token) -> Ordering {
        match (self, other) {
            (Token::Uuid(a), Token::Uuid(b)) => {
                u128::from_le_bytes(*a).cmp(&u128::from_le_bytes(*b))
            }
            (Token::Text(a), Token::Text(b)) => a.cmp(b),
            (Token::Uuid(_), Token::Text(_)) => Ordering::Less,
            (Token::Text(_), Token::Uuid(_)) => Ordering::Greater,
        }
    }
}

impl PartialOrd for Token {
    fn partial_cmp(&self, other: &Token) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The buffer into which [`Token::text`] writes a UUID.
pub type TokenBuffer = [u8; uuid::fmt::Hyphenated::LENGTH];

impl Token {
    /// The longest token, in bytes.
    pub const MAX_LEN: usize = 128;

    /// Returns the token with this text, if its length is legal.
    pub fn parse(text: &[u8]) -> Option<Token> {
        TokenView::parse(text).map(Token::from)
    }

    /// Returns the bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Token::Uuid(_) => 0,
            Token::Text(text) => text.heap_bytes(),
        }
    }

    /// Returns the text of the token. A UUID is written into `buffer`.
    pub fn text<'a>(&'a self, buffer: &'a mut TokenBuffer) -> &'a [u8] {
        match self {
            Token::Uuid(bytes) => uuid::Uuid::from_bytes(*bytes)
                .hyphenated()
                .encode_lower(buffer)
                .as_bytes(),
            Token::Text(text) => text.as_bytes(),
        }
    }
}

/// An empty [`TokenBuffer`].
pub fn new_token_buffer() -> TokenBuffer {
    [0; uuid::fmt::Hyphenated::LENGTH]
}

/// Tokens are secret, so no log line and no panic message may contain one.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spelled(text: &[u8]) -> Vec<u8> {
        let mut buffer = new_token_buffer();
        Token::parse(text)
            .expect("legal")
            .text(&mut buffer)
            .to_vec()
    }

    #[test]
    fn token_text_survives_parsing_exactly() {
        let texts: [&[u8]; 8] = [
            b"a",
            b"8f14e45f-ceea-467f-a8f5-6d1e2c3b4a59",
            b"8F14E45F-CEEA-467F-A8F5-6D1E2C3B4A59",
            b"8F14E45f-ceea-467f-a8f5-6d1e2c3b4a59",
            b"8f14e45fceea467fa8f56d1e2c3b4a59",
            b"{8f14e45f-ceea-467f-a8f5-6d1e2c3b4a5}",
            b"\0\xff\r\n",
            &[b'x'; 128],
        ];
        for text in texts {
            assert_eq!(spelled(text), text, "{}", String::from_utf8_lossy(text));
        }
        assert!(matches!(Token::parse(texts[1]), Some(Token::Uuid(_))));
        assert!(matches!(Token::parse(texts[2]), Some(Token::Text(_))));
        assert_ne!(Token::parse(texts[1]), Token::parse(texts[2]));
    }

    #[test]
    fn token_of_0_or_129_bytes_is_refused() {
        assert_eq!(Token::parse(b""), None);
        assert_eq!(Token::parse(&[b'x'; 129]), None);
    }

    #[test]
    fn token_debug_output_hides_its_text() {
        let token = Token::parse(b"secret").expect("legal");
        assert_eq!(format!("{token:?}"), "Token(…)");
    }
}
