//! Text for terminals: bytes of other people made harmless, and tables.

use std::io::{self, Write};

/// Returns bytes as text, with control characters escaped: a key or an owner must not move the cursor or colour the screen.
pub fn printable(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for c in String::from_utf8_lossy(bytes).chars() {
        if c.is_control() {
            text.extend(c.escape_default());
        } else {
            text.push(c);
        }
    }
    text
}

/// Returns text, or a dash where there is none.
pub fn or_dash(bytes: Option<&[u8]>) -> String {
    match bytes {
        Some(bytes) if !bytes.is_empty() => printable(bytes),
        _ => "-".into(),
    }
}

/// Which side of a column its values stand on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    Left,
    Right,
}

/// A table with a line of headings. Columns are as wide as their widest value.
pub struct Table {
    headings: Vec<(&'static str, Side)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(headings: &[(&'static str, Side)]) -> Table {
        Table {
            headings: headings.to_vec(),
            rows: Vec::new(),
        }
    }

    pub fn row(&mut self, row: Vec<String>) {
        debug_assert_eq!(row.len(), self.headings.len());
        self.rows.push(row);
    }

    /// Returns the lines, the headings first.
    pub fn lines(&self) -> Vec<String> {
        let headings: Vec<String> = self
            .headings
            .iter()
            .map(|heading| heading.0.to_owned())
            .collect();
        let all = || std::iter::once(&headings).chain(&self.rows);
        let width = |nth: usize| all().map(|row| row[nth].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..headings.len()).map(width).collect();
        let line = |row: &Vec<String>| {
            let mut line = String::new();
            for (nth, value) in row.iter().enumerate() {
                let padding = " ".repeat(widths[nth] - value.chars().count());
                match self.headings[nth].1 {
                    Side::Left => line.extend([value.as_str(), &padding]),
                    Side::Right => line.extend([padding.as_str(), value]),
                }
                line.push_str("  ");
            }
            line.trim_end().to_owned()
        };
        all().map(line).collect()
    }

    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        self.lines()
            .iter()
            .try_for_each(|line| writeln!(out, "{line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(
            printable(b"web-1\x1b[2J\n\xff"),
            "web-1\\u{1b}[2J\\n\u{fffd}"
        );
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_value() {
        let mut table = Table::new(&[("KEY", Side::Left), ("HELD", Side::Right)]);
        table.row(vec!["a".into(), "10s".into()]);
        table.row(vec!["größer".into(), "5m1s".into()]);
        assert_eq!(
            table.lines(),
            ["KEY     HELD", "a        10s", "größer  5m1s"]
        );
    }
}
