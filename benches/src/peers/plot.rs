//! The plot of the waits of 16 workers: median, 99 % and longest of each peer, on an axis that grows by factors.

use std::path::{Path, PathBuf};

use plotters::coord::combinators::LogCoord;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use super::table::duration;
use super::{Findings, Outcome};
use crate::colours::{OURS, THEIRS, add_dark};
use crate::invalid::{Context, Result};

const WORKERS: usize = 16;
const WIDTH: u32 = 960;
/// Of one peer.
const LINE: u32 = 30;
const NAMES: u32 = 190;
const SHARES: u32 = 175;
const LABELS: (&str, u32) = ("sans-serif", 15);

type Drawn<T> = std::result::Result<T, Box<dyn std::error::Error>>;
type Chart<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<LogCoord<f64>, RangedCoordf64>>;

/// Draws the plot and returns its file, or none where no contest had that many workers.
pub fn draw(findings: &Findings, out: &Path) -> Result<Option<PathBuf>> {
    let outcomes: Vec<&Outcome> = findings
        .outcomes
        .iter()
        .filter(|outcome| outcome.workers == WORKERS && outcome.permits.is_none())
        .collect();
    if outcomes.is_empty() {
        return Ok(None);
    }
    let path = out.join("waits-of-16-workers.svg");
    draw_waits(&outcomes, &path).context(path.display())?;
    add_dark(&path)?;
    Ok(Some(path))
}

fn draw_waits(outcomes: &[&Outcome], path: &Path) -> Drawn<()> {
    let height = LINE * outcomes.len() as u32 + 146;
    let root = SVGBackend::new(path, (WIDTH, height)).into_drawing_area();
    root.fill(&WHITE)?;
    let lines = outcomes.len() as f64;
    let inside_ms = outcomes[0].inside_ms;
    let title = format!(
        "Waits of {WORKERS} workers on one lock, {inside_ms} ms inside: median ●, 99 % ▲, longest ✕"
    );
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 18))
        .margin(16)
        .margin_left(16 + NAMES)
        .margin_right(SHARES)
        .x_label_area_size(56)
        .build_cartesian_2d((0.01..10_000.0).log_scale(), 0.0..lines)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .max_light_lines(0)
        .label_style(LABELS)
        .x_desc("from asking to being in (+: was still waiting at the end)")
        .x_label_formatter(&|ms| duration(*ms).replace(".00", "").replace(".0 ", " "))
        .draw()?;
    for (at, outcome) in outcomes.iter().enumerate() {
        // The first peer stands on top.
        draw_peer(&mut chart, outcome, lines - at as f64 - 0.5)?;
    }
    for (at, outcome) in outcomes.iter().enumerate() {
        let figures = &outcome.figures;
        let y = chart.backend_coord(&(1.0, lines - at as f64 - 0.5)).1 - 8;
        root.draw(&Text::new(outcome.peer, (16, y), LABELS))?;
        let shares = format!(
            "Jain {:.2}, {}/{} in",
            figures.jain, figures.served, outcome.workers
        );
        root.draw(&Text::new(
            shares,
            ((WIDTH - SHARES) as i32 + 24, y),
            LABELS,
        ))?;
    }
    root.present()?;
    Ok(())
}

fn draw_peer(chart: &mut Chart<'_>, outcome: &Outcome, y: f64) -> Drawn<()> {
    let waits = &outcome.figures.wait_ms;
    let is_ours = outcome.peer.starts_with("dsync");
    let colour = if is_ours { OURS } else { THEIRS };
    let ends = [(waits.median, y), (waits.longest, y)];
    chart.draw_series([PathElement::new(ends, colour.stroke_width(2))])?;
    chart.draw_series([Circle::new((waits.median, y), 4, colour.filled())])?;
    chart.draw_series([TriangleMarker::new(
        (waits.percentile_99, y),
        6,
        colour.filled(),
    )])?;
    chart.draw_series([Cross::new((waits.longest, y), 5, colour.stroke_width(2))])?;
    if waits.is_longest_open {
        let right_of_it = (waits.longest * 1.2, y + 0.28);
        chart.draw_series([Text::new("+", right_of_it, LABELS)])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::visits::{Stay, Visit, Visits};

    fn outcome(peer: &'static str, workers: usize) -> Outcome {
        let visit = Visit {
            worker: 0,
            asked_us: 0,
            stay: Some(Stay {
                got_us: 50,
                left_us: 60,
            }),
        };
        let visits = Visits {
            begin_us: 0,
            end_us: 1_000_000,
            all: vec![visit],
        };
        Outcome {
            peer,
            what: "port".to_owned(),
            waiting: "",
            workers,
            permits: None,
            inside_ms: 1,
            seconds: 1.0,
            figures: visits.figures(workers, 1),
            commands_each: 2.0,
        }
    }

    #[test]
    fn plot_shows_contests_of_16_workers_alone() {
        let out = std::env::temp_dir().join(format!("dsync-bench-peers-{}", std::process::id()));
        std::fs::create_dir_all(&out).unwrap();
        let mut findings = Findings {
            outcomes: vec![outcome("alone", 1)],
            crashes: Vec::new(),
        };
        let before = draw(&findings, &out).unwrap();
        findings.outcomes.push(outcome("crowd", WORKERS));
        let path = draw(&findings, &out).unwrap().unwrap();
        let text = std::fs::read_to_string(path).unwrap();
        std::fs::remove_dir_all(&out).unwrap();
        assert_eq!(before, None);
        assert!(text.contains("prefers-color-scheme"));
        assert!(text.contains("crowd") && text.contains("1/16") && !text.contains("alone"));
    }
}
