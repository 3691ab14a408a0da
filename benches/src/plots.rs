//! Draws the rows that have a place in a plot, as SVG: curves over a size, and bars.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use crate::colours::{OURS, THEIRS, add_dark};
use crate::columns::figure;
use crate::invalid::{Context, Result};
use crate::row::{Place, Row};
use crate::statistics::median;

const SIZE: (u32, u32) = (860, 480);
const BARS_SIZE: (u32, u32) = (1100, 480);
const LABELS: (&str, u32) = ("sans-serif", 15);

/// Draws every chart that has rows and returns the files.
pub fn draw(rows: &[Row], out: &Path) -> Result<Vec<PathBuf>> {
    let mut curves: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
    let mut bars: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
    let mut ranges: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
    for row in rows.iter().filter(|row| !row.theirs.is_empty()) {
        match &row.place {
            Some(Place::Curve { chart, .. }) => curves.entry(chart).or_default().push(row),
            Some(Place::Bars { chart }) => bars.entry(chart).or_default().push(row),
            Some(Place::Ranges { chart, .. }) => ranges.entry(chart).or_default().push(row),
            None => {}
        }
    }
    let mut files = Vec::new();
    for (chart, rows) in curves {
        files.push(file(chart, out, |path| draw_curves(chart, &rows, path))?);
    }
    for (chart, rows) in bars {
        files.push(file(chart, out, |path| draw_bars(chart, &rows, path))?);
    }
    for (chart, rows) in ranges {
        files.push(file(chart, out, |path| draw_ranges(chart, &rows, path))?);
    }
    Ok(files)
}

fn file(chart: &str, out: &Path, draw: impl FnOnce(&Path) -> DrawResult<()>) -> Result<PathBuf> {
    let path = out.join(format!("{}.svg", chart.replace(' ', "-").to_lowercase()));
    draw(&path).context(path.display())?;
    add_dark(&path)?;
    Ok(path)
}

/// Ours and theirs over a size, which grows by factors.
fn draw_curves(chart: &str, rows: &[&Row], path: &Path) -> DrawResult<()> {
    let mut ours = Vec::new();
    let mut theirs = Vec::new();
    let mut name = "";
    for row in rows {
        if let Some(Place::Curve { x_name, x, .. }) = &row.place {
            name = x_name;
            ours.push((*x, median(&row.ours)));
            theirs.push((*x, median(&row.theirs)));
        }
    }
    // The same size may have been measured by two lines.
    for points in [&mut ours, &mut theirs] {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points.dedup_by_key(|point| point.0);
    }
    let first = ours.first().map_or(1.0, |point| point.0);
    let last = ours.last().map_or(1.0, |point| point.0).max(first * 10.0);
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let mut area = framed(&root, chart, (first..last).log_scale(), 0.0..highest(rows))?;
    let size = |x: &f64| format!("{x:.0}");
    let unit = rows.first().map_or("", |row| row.unit);
    area.configure_mesh()
        .max_light_lines(0)
        .x_desc(name)
        .y_desc(unit)
        .label_style(LABELS)
        .x_label_formatter(&size)
        .draw()?;
    for (label, colour, points) in [
        ("dsync", OURS, ours),
        ("without the module", THEIRS, theirs),
    ] {
        let dots = points.clone();
        area.draw_series(LineSeries::new(points, colour.stroke_width(2)))?
            .label(label)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        area.draw_series(
            dots.into_iter()
                .map(|point| Circle::new(point, 3, colour.filled())),
        )?;
    }
    area.configure_series_labels()
        .label_font(LABELS)
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE)
        .border_style(BLACK)
        .draw()?;
    root.present()?;
    Ok(())
}

/// Ours and theirs side by side, a pair of bars a row. The bars are shares of theirs, because that is what a reader
/// compares; the figures stand above them.
fn draw_bars(chart: &str, rows: &[&Row], path: &Path) -> DrawResult<()> {
    let ratio = |row: &Row| median(&row.costs);
    let highest = rows.iter().map(|row| ratio(row)).fold(1.0, f64::max) * 1.15;
    let root = SVGBackend::new(path, BARS_SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let title = format!("{chart}: dsync (left), without the module (right)");
    let mut area = framed(&root, &title, 0.0..rows.len() as f64, 0.0..highest)?;
    let no_label = |_: &f64| String::new();
    area.configure_mesh()
        .disable_x_mesh()
        .max_light_lines(0)
        .label_style(LABELS)
        .x_label_formatter(&no_label)
        .y_desc("ours / theirs")
        .draw()?;
    for (at, row) in rows.iter().enumerate() {
        let left = at as f64;
        for (from, height, colour) in [(0.15, ratio(row), OURS), (0.5, 1.0, THEIRS)] {
            let corners = [(left + from, 0.0), (left + from + 0.33, height)];
            area.draw_series([Rectangle::new(corners, colour.filled())])?;
        }
        let figures = format!(
            "{:.0} / {:.0} {}",
            median(&row.ours),
            median(&row.theirs),
            row.unit
        );
        // "a held lock, RDB", of "a held lock / SET PX lock, RDB".
        let (ours, theirs) = row.what.split_once(" / ").unwrap_or((&row.what, ""));
        let form = theirs
            .split_once(", ")
            .map_or(String::new(), |(_, form)| format!(", {form}"));
        // Names are wider than their bars: every second one stands lower.
        let below = -highest * if at % 2 == 0 { 0.015 } else { 0.06 };
        area.draw_series([
            Text::new(
                figures,
                (left + 0.15, ratio(row).max(1.0) + highest * 0.05),
                LABELS,
            ),
            Text::new(format!("{ours}{form}"), (left + 0.15, below), LABELS),
        ])?;
    }
    root.present()?;
    Ok(())
}

/// A line for each way, with a point for each of its figures, on an axis that grows by factors.
fn draw_ranges(chart: &str, rows: &[&Row], path: &Path) -> DrawResult<()> {
    let mut lines: Vec<(&str, Vec<f64>)> = Vec::new();
    let mut add = |name, figure| match lines.iter_mut().find(|line| line.0 == name) {
        // Ours is the same figure beside each of theirs.
        Some((_, figures)) if figures.contains(&figure) => {}
        Some((_, figures)) => figures.push(figure),
        None => lines.push((name, vec![figure])),
    };
    let mut what: Vec<&str> = Vec::new();
    for row in rows {
        if let Some(Place::Ranges { ours, theirs, .. }) = &row.place {
            add(ours, median(&row.ours));
            add(theirs, median(&row.theirs));
            // "the longest wait", of "the longest wait, LANE / first come, first served".
            let name = row.what.split(", ").next().unwrap_or_default();
            if !what.contains(&name) {
                what.push(name);
            }
        }
    }
    let unit = rows.first().map_or("", |row| row.unit);
    let all = lines
        .iter()
        .flat_map(|(_, figures)| figures.iter().copied());
    let (least, most) = all.fold((f64::MAX, 1.0), |(least, most), figure| {
        (figure.min(least), figure.max(most))
    });
    let left = least / 2.0;
    let count = lines.len() as f64;
    let root = SVGBackend::new(path, (SIZE.0, 120 + 56 * lines.len() as u32)).into_drawing_area();
    root.fill(&WHITE)?;
    let x = (left..most * 2.0).log_scale();
    let mut area = framed(&root, chart, x, 0.0..count)?;
    area.configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .max_light_lines(0)
        .label_style(LABELS)
        .x_desc(format!("{} ({unit})", what.join(", ")))
        .x_label_formatter(&|x| format!("{x:.0}"))
        .draw()?;
    for (at, (name, figures)) in lines.iter().enumerate() {
        // The first stands on top.
        let y = count - at as f64 - 0.7;
        let colour = if at == 0 { OURS } else { THEIRS };
        let texts: Vec<_> = figures.iter().map(|value| figure(*value)).collect();
        let label = format!("{name}: {}", texts.join(", "));
        let points: Vec<_> = figures.iter().map(|value| (*value, y)).collect();
        area.draw_series([Text::new(label, (left, y + 0.55), LABELS)])?;
        area.draw_series(
            points
                .iter()
                .map(|point| Circle::new(*point, 4, colour.filled())),
        )?;
        area.draw_series([PathElement::new(points, colour.stroke_width(2))])?;
    }
    root.present()?;
    Ok(())
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Framed<'a, X> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, RangedCoordf64>>;
type DrawResult<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Title, margins and axes.
fn framed<'a, X>(
    root: &Area<'a>,
    title: &str,
    x: X,
    y: Range<f64>,
) -> DrawResult<Framed<'a, X::CoordDescType>>
where
    X: AsRangedCoord<Value = f64>,
    X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let chart = ChartBuilder::on(root)
        .caption(title, ("sans-serif", 20))
        .margin(16)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(x, y)
        .map_err(|error| error.to_string())?;
    Ok(chart)
}

fn highest(rows: &[&Row]) -> f64 {
    let figures = rows
        .iter()
        .flat_map(|row| [median(&row.ours), median(&row.theirs)]);
    figures.fold(0.0, f64::max) * 1.25
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Samples;

    fn row(place: Place) -> Row {
        let mut samples = Samples::default();
        samples.push(2.0, 1.0);
        samples.push(3.0, 2.0);
        Row::new("line", "a hold / a key, RDB", "B", samples).at(place)
    }

    #[test]
    fn every_chart_with_rows_becomes_a_file() {
        let out = std::env::temp_dir().join(format!("dsync-bench-plots-{}", std::process::id()));
        std::fs::create_dir_all(&out).unwrap();
        let curve = |x| {
            row(Place::Curve {
                chart: "A curve",
                x_name: "waiters",
                x,
            })
        };
        let bar = row(Place::Bars { chart: "bars" });
        let range = |theirs| {
            row(Place::Ranges {
                chart: "ranges",
                ours: "queue",
                theirs,
            })
        };
        let rows = [
            curve(10.0),
            curve(10.0),
            curve(1000.0),
            bar,
            range("polls"),
            range("sleeps"),
        ];
        let files = draw(&rows, &out).unwrap();
        let texts: Vec<_> = files
            .iter()
            .map(|path| std::fs::read_to_string(path).unwrap())
            .collect();
        std::fs::remove_dir_all(&out).unwrap();
        assert!(files[0].ends_with("a-curve.svg") && files[1].ends_with("bars.svg"));
        assert!(texts[0].contains("waiters") && texts[0].contains("dsync"));
        assert!(
            texts
                .iter()
                .all(|text| text.contains("prefers-color-scheme"))
        );
        assert!(texts[1].contains("a hold, RDB"));
        // Ours once.
        assert_eq!(texts[2].matches("queue: 2.50\n").count(), 1);
        assert!(texts[2].contains("polls: 1.50\n") && texts[2].contains("sleeps: 1.50\n"));
    }
}
