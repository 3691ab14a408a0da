//! What a run found: the rows, and all that a reader needs to judge them. Printed as a table, written as JSON.

use serde::{Serialize, Serializer};

use crate::columns::aligned;
use crate::invalid::Invalid;
use crate::machine::Machine;
use crate::options::Mode;
use crate::peers::Findings;
use crate::row::{Row, WIDE};
use crate::statistics::{largest, median, smallest};

#[derive(Serialize)]
pub struct Report {
    pub machine: Machine,
    pub mode: Mode,
    pub server: String,
    pub native_server: String,
    /// The module as the server's INFO names it.
    pub module: String,
    #[serde(serialize_with = "with_results")]
    pub rows: Vec<Row>,
    /// What other lock algorithms do.
    pub peers: Findings,
    /// Lines that did not run or ran smaller than planned, with the reason.
    pub notes: Vec<String>,
    /// Lines that ran and are worth nothing, with the reason. Any makes the run invalid.
    pub invalid: Vec<String>,
}

impl Report {
    /// Keeps the reason why what has `name` makes the run invalid, if there is one, and says it at once.
    pub fn note_invalid(&mut self, name: &str, result: Result<(), Invalid>) {
        if let Err(error) = result {
            eprintln!("         INVALID: {error}");
            self.invalid.push(format!("{name}: {error}"));
        }
    }

    /// Reasons to doubt the figures, though each reply was right.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.machine.is_busy() {
            warnings.push(format!(
                "the machine was busy at the start: load {} on {} cores",
                self.machine.load, self.machine.cores
            ));
        }
        // What a quick run measures is too short to be anything but wide.
        let is_judged = self.mode != Mode::Quick;
        for row in self.rows.iter().filter(|row| is_judged && row.is_wide()) {
            let [name, setting, ..] = row.cells();
            let name = format!("{name} {setting}").trim_end().to_owned();
            warnings.push(format!(
                "the pairs spread by more than {}: {name}",
                percent(WIDE)
            ));
        }
        warnings
    }

    pub fn table(&self) -> String {
        let old = match self.rows.iter().all(|row| row.old.is_empty()) {
            true => "",
            false => "old",
        };
        let titles = [
            "line", "setting", "ours", old, "theirs", "ratio", "spread", "target", "",
        ];
        let rows: Vec<[String; 9]> = std::iter::once(titles.map(str::to_owned))
            .chain(self.rows.iter().map(Row::cells))
            .collect();
        // Figures stand on the right of their columns.
        aligned(&rows, &[2, 3, 4, 5])
    }
}

/// What the table shows of a row, for readers of the JSON.
#[derive(Serialize)]
struct Results {
    ours: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    theirs: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<Spread>,
    /// Null where there is no target.
    is_reached: Option<bool>,
}

#[derive(Serialize)]
struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

#[derive(Serialize)]
struct Complete<'a> {
    #[serde(flatten)]
    row: &'a Row,
    result: Results,
}

fn with_results<S: Serializer>(rows: &[Row], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(rows.iter().map(|row| {
        let ratios = row.ratios();
        let is_compared = !ratios.is_empty();
        Complete {
            row,
            result: Results {
                ours: median(&row.ours),
                theirs: is_compared.then(|| median(&row.theirs)),
                ratio: is_compared.then(|| Spread {
                    median: median(&ratios),
                    min: smallest(&ratios),
                    max: largest(&ratios),
                }),
                is_reached: row.is_reached(),
            },
        }
    }))
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Samples;

    fn row(ours: &[f64], theirs: &[f64]) -> Row {
        let mut samples = Samples::default();
        for (ours, theirs) in ours.iter().zip(theirs) {
            samples.push(*ours, *theirs);
        }
        samples.ours = ours.to_vec();
        Row::new("line", "what", "ns", samples)
    }

    fn report(rows: Vec<Row>) -> Report {
        Report {
            machine: Machine::look().unwrap(),
            mode: Mode::Full,
            server: String::new(),
            native_server: String::new(),
            module: String::new(),
            rows,
            peers: Findings::default(),
            notes: Vec::new(),
            invalid: Vec::new(),
        }
    }

    #[test]
    fn table_has_a_line_a_row_and_aligned_columns() {
        let rows = vec![
            row(&[1.0], &[2.0]).speed_at_least(0.97),
            row(&[5.0], &[]).at_most(4.0),
        ];
        let table = report(rows).table();
        let lines: Vec<_> = table.lines().collect();
        assert_eq!(
            lines[1],
            "line: what           1.00 ns  2.00 ns   2.00  2.00..2.00  ≥ 0.97 ×  ok"
        );
        assert_eq!(
            lines[2],
            "line: what           5.00 ns        -      -  -           ≤ 4 ns    below"
        );
    }

    #[test]
    fn wide_spread_is_a_warning_but_in_a_quick_run() {
        let mut report = report(vec![row(&[1.0, 2.0], &[1.0, 1.0])]);
        report.machine.load = 0.0;
        assert_eq!(
            report.warnings(),
            ["the pairs spread by more than 25 %: line: what"]
        );
        report.mode = Mode::Quick;
        assert_eq!(report.warnings(), [""; 0]);
    }

    #[test]
    fn json_has_the_figures_and_the_verdict() {
        let rows = vec![row(&[1.0], &[2.0]).speed_at_least(0.97)];
        let json = serde_json::to_value(report(rows)).unwrap();
        let row = &json["rows"][0];
        assert_eq!(row["theirs"][0], 2.0);
        assert_eq!(row["result"]["ratio"]["median"], 2.0);
        assert_eq!(row["result"]["is_reached"], true);
        assert_eq!(json["mode"], "full");
    }
}
