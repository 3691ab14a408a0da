//! Tables as text: columns as wide as their widest cell, and how numbers are written in them.

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

/// Two digits behind the point; three where that would be 0.00.
pub fn ratio(value: f64) -> String {
    if value > 0.0 && value < 0.01 {
        format!("{value:.3}")
    } else {
        format!("{value:.2}")
    }
}

/// A number with three digits that matter, or all digits before the point.
pub fn figure(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => {
            let digits = format!("{value:.0}");
            let mut grouped = String::new();
            for (at, digit) in digits.chars().enumerate() {
                if at > 0 && (digits.len() - at).is_multiple_of(3) && grouped != "-" {
                    grouped.push(',');
                }
                grouped.push(digit);
            }
            grouped
        }
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 || size == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["a", "", "µs", "x"], ["long", "", "1", ""]].map(|row| row.map(str::to_owned));
        assert_eq!(aligned(&rows, &[2]), "a     µs  x\nlong   1\n");
    }

    #[test]
    fn ratios_are_not_rounded_to_zero() {
        assert_eq!(
            [0.0, 0.0051, 0.01, 21.2].map(ratio),
            ["0.00", "0.005", "0.01", "21.20"]
        );
    }

    #[test]
    fn figures_have_three_digits_that_matter() {
        let cases = [
            (0.0314, "0.031"),
            (0.0, "0.00"),
            (2.34567, "2.35"),
            (23.4567, "23.5"),
            (234.567, "235"),
            (2345.67, "2,346"),
            (1_234_567.0, "1,234,567"),
        ];
        for (value, text) in cases {
            assert_eq!(figure(value), text);
        }
    }
}
