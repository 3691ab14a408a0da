//! Tables as text: columns as wide as their widest cell.

/// A line for each row. The columns in `right` are aligned on the right. An empty column is left out.
pub fn aligned<const N: usize>(rows: &[[String; N]], right: &[usize]) -> String {
    let widths: [usize; N] = std::array::from_fn(|at| {
        let widths = rows.iter().map(|cells| cells[at].chars().count());
        widths.max().unwrap_or(0)
    });
    let mut text = String::new();
    for cells in rows {
        for (at, (cell, width)) in cells.iter().zip(widths).enumerate() {
            if width == 0 {
                continue;
            }
            let gap = " ".repeat(width - cell.chars().count());
            let padded = match right.contains(&at) {
                true => [&gap, cell.as_str(), "  "],
                false => [cell.as_str(), &gap, "  "],
            };
            text.extend(padded);
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["a", "", "µs", "x"], ["long", "", "1", ""]].map(|row| row.map(str::to_owned));
        assert_eq!(aligned(&rows, &[2]), "a     µs  x\nlong   1\n");
    }
}
