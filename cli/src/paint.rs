//! Colours and bold letters, where a terminal shows them and the user wants them: a variable NO_COLOR that is not empty
//! (no-color.org) and TERM=dumb turn them off. And how much there is room for.

use std::io::{self, IsTerminal, Write};

/// How a line is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tone {
    Plain,
    Heading,
    Warning,
    Bad,
    /// Where the cursor of a view is: shown without colours too.
    Selected,
}

/// Returns the columns and lines of the terminal. One that does not know them, on a serial line perhaps, has zeros.
pub fn size() -> (usize, usize) {
    match crossterm::terminal::size() {
        Ok((columns @ 1.., lines @ 1..)) => (columns.into(), lines.into()),
        _ => (80, 24),
    }
}

#[derive(Clone, Copy)]
pub struct Paint {
    has_colours: bool,
}

impl Paint {
    pub fn of(stream: &impl IsTerminal) -> Paint {
        let forbids =
            |name: &str, by: fn(&str) -> bool| std::env::var(name).is_ok_and(|value| by(&value));
        let is_forbidden = forbids("NO_COLOR", |value| !value.is_empty())
            || forbids("TERM", |value| value == "dumb");
        Paint {
            has_colours: stream.is_terminal() && !is_forbidden,
        }
    }

    /// Writes lines, as they are meant.
    pub fn write(self, out: &mut impl Write, lines: &[(Tone, String)]) -> io::Result<()> {
        lines
            .iter()
            .try_for_each(|(tone, line)| writeln!(out, "{}", self.line(*tone, line)))
    }

    pub fn line(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Selected => 7,
            _ if !self.has_colours => return text.to_owned(),
            Tone::Plain => return text.to_owned(),
            Tone::Heading => 1,
            Tone::Warning => 33,
            Tone::Bad => 31,
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}
