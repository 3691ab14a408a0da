//! Texts for people, and texts that are too long.

/// Returns a text of another client as it may stand in a log or on a terminal: control characters, and those that take
/// no room or turn the direction of writing, are escaped.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for sign in text.chars() {
        match sign {
            '\'' | '"' => shown.push(sign),
            _ => shown.extend(sign.escape_debug()),
        }
    }
    shown
}

/// Returns as much of the beginning as fits into so many bytes.
pub(crate) fn cut(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_has_no_sign_that_a_terminal_obeys() {
        let shown = printable("we\u{1b}[2J\nb-1 \u{202e}\u{200b}\u{7f}it's");
        assert_eq!(shown, r"we\u{1b}[2J\nb-1 \u{202e}\u{200b}\u{7f}it's");
        assert_eq!(printable("müller@web-1:7"), "müller@web-1:7");
    }
}
