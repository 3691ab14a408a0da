//! Makes tokens: version-4 UUIDs from a cryptographically secure generator that the operating system seeds, so that no
//! token can be guessed or occurs twice. The module uses randomness for nothing else.

use rand::Rng as _;

use dsync_engine::types::Token;

pub(crate) fn new_token() -> Token {
    let mut random = [0; 16];
    rand::rng().fill_bytes(&mut random);
    Token::Uuid(
        uuid::Builder::from_random_bytes(random)
            .into_uuid()
            .into_bytes(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use dsync_engine::types::new_token_buffer;

    #[test]
    fn new_token_is_a_fresh_version_4_uuid() {
        let (one, other) = (new_token(), new_token());
        assert_ne!(one, other);
        let mut buffer = new_token_buffer();
        let text = one.text(&mut buffer);
        assert_eq!((text.len(), text[14], text[8]), (36, b'4', b'-'));
    }
}
