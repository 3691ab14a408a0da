//! The colours of all plots, on a white and on a dark page. A plot is drawn in the first ones; a style in the file replaces
//! them where the reader prefers a dark page, be it the file that is read or a page with the plot in it.

use std::path::Path;

use plotters::style::RGBColor;

use crate::invalid::{Context, Result};

pub const OURS: RGBColor = RGBColor(0x1f, 0x5f, 0xa8);
pub const THEIRS: RGBColor = RGBColor(0xb8, 0x6a, 0x1c);

/// Each colour of a plot, as plotters writes it, and what stands for it on a dark page.
const ON_DARK: [(&str, &str); 4] = [
    ("#FFFFFF", "#16181D"),
    ("#000000", "#E4E6EA"),
    ("#1F5FA8", "#7FB2F0"),
    ("#B86A1C", "#F0A75A"),
];

/// Adds the colours for a dark page to a plot that has been drawn.
pub fn add_dark(path: &Path) -> Result<()> {
    let plot = std::fs::read_to_string(path).context(path.display())?;
    std::fs::write(path, with_dark(&plot)).context(path.display())
}

/// The plot with a style after its first tag. A rule of a style counts for more than the attribute that it selects by.
fn with_dark(plot: &str) -> String {
    let begin = plot.find(">\n").map_or(0, |end| end + 2);
    let (first, rest) = plot.split_at(begin);
    let mut style = String::from("<style>\n@media (prefers-color-scheme: dark) {\n");
    for (light, dark) in ON_DARK {
        style += &format!("[fill=\"{light}\"] {{ fill: {dark} }}\n");
        style += &format!("[stroke=\"{light}\"] {{ stroke: {dark} }}\n");
    }
    format!("{first}{style}}}\n</style>\n{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The colours that the attributes of a plot name.
    fn colours(plot: &str) -> Vec<&str> {
        let attributes = plot.split(['\"', ' ']);
        attributes.filter(|word| word.starts_with('#')).collect()
    }

    #[test]
    fn every_plot_of_the_documents_has_its_colours_for_a_dark_page() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/plots");
        let mut plots = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let (before, style) = text.split_once("<style>\n").expect("a style");
            let (_, after) = style.split_once("</style>\n").expect("its end");
            let drawn = format!("{before}{after}");
            assert_eq!(with_dark(&drawn), text, "{}", path.display());
            for colour in colours(&drawn) {
                let is_known = ON_DARK.iter().any(|(light, _)| *light == colour);
                assert!(is_known, "{}: {colour}", path.display());
            }
            plots += 1;
        }
        assert!(plots >= 9, "{plots} plots");
    }
}
