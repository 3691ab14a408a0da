//! Patterns as the server has them: `*`, `?`, `[a-z]`, `[^a]`, and `\` before a character that stands for itself.

/// What one byte of the text must be.
enum Element {
    Byte(u8),
    One,
    /// Of these ranges, or of none of them.
    Class(Vec<(u8, u8)>, bool),
    /// As many bytes as there are, or none.
    Many,
}

pub struct Pattern(Vec<Element>);

impl Pattern {
    pub fn new(text: &[u8]) -> Pattern {
        let mut elements = Vec::new();
        let mut rest = text;
        while let Some((&first, after)) = rest.split_first() {
            let element = match (first, after) {
                (b'*', _) => (Element::Many, after),
                (b'?', _) => (Element::One, after),
                (b'\\', [byte, after @ ..]) => (Element::Byte(*byte), after),
                (b'[', _) => class(after).unwrap_or((Element::Byte(b'['), after)),
                _ => (Element::Byte(first), after),
            };
            elements.push(element.0);
            rest = element.1;
        }
        Pattern(elements)
    }

    /// Whether the whole text fits.
    pub fn fits(&self, text: &[u8]) -> bool {
        let (mut at, mut byte) = (0, 0);
        // Behind the last `*`, and the byte up to which that took all.
        let mut retry: Option<(usize, usize)> = None;
        while byte < text.len() {
            let fits = match self.0.get(at) {
                Some(Element::Many) => {
                    at += 1;
                    retry = Some((at, byte));
                    continue;
                }
                Some(element) => element.is(text[byte]),
                None => false,
            };
            if fits {
                (at, byte) = (at + 1, byte + 1);
            } else if let Some((behind, taken)) = retry {
                retry = Some((behind, taken + 1));
                (at, byte) = (behind, taken + 1);
            } else {
                return false;
            }
        }
        self.0[at..]
            .iter()
            .all(|element| matches!(element, Element::Many))
    }
}

impl Element {
    fn is(&self, byte: u8) -> bool {
        match self {
            Element::Byte(this) => *this == byte,
            Element::One | Element::Many => true,
            Element::Class(ranges, is_negated) => {
                let is_in = ranges
                    .iter()
                    .any(|(low, high)| (low..=high).contains(&&byte));
                is_in != *is_negated
            }
        }
    }
}

/// Reads a class up to its end; `None` if it has none. Returns what follows, too.
fn class(text: &[u8]) -> Option<(Element, &[u8])> {
    let end = text.iter().position(|byte| *byte == b']')?;
    let (mut class, after) = (&text[..end], &text[end + 1..]);
    let is_negated = class.first() == Some(&b'^');
    if is_negated {
        class = &class[1..];
    }
    let mut ranges = Vec::new();
    while let [low, rest @ ..] = class {
        let (high, rest) = match rest {
            [b'-', high, rest @ ..] => (high, rest),
            rest => (low, rest),
        };
        ranges.push((*low.min(high), *low.max(high)));
        class = rest;
    }
    Some((Element::Class(ranges, is_negated), after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_as_on_the_server() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("job:*", "job:1", true),
            ("job:*", "jobs", false),
            ("a*c*e", "abcde", true),
            ("a*bc", "abbbc", true),
            ("a**e", "abcd", false),
            ("?x", "ax", true),
            ("?x", "x", false),
            ("web-[0-4a]", "web-3", true),
            ("web-[0-4a]", "web-5", false),
            ("web-[4-0]", "web-3", true),
            ("web-[^0-4]", "web-5", true),
            ("web-[^0-4]", "web-3", false),
            ("a\\*b", "a*b", true),
            ("a\\*b", "axb", false),
            ("a[b", "a[b", true),
            (
                "a*a*a*a*a*a*a*a*a*b",
                "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                false,
            ),
        ] {
            let fits = Pattern::new(pattern.as_bytes()).fits(text.as_bytes());
            assert_eq!(fits, expected, "{pattern} {text}");
        }
    }
}
