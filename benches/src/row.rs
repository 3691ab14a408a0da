//! One comparison: its figures, what it must reach, and whether it does.
//!
//! A figure is the median of its pairs. A ratio is made of neighbours in time: of the two figures of a pair or, where a
//! pair consists of slices, of the two figures of each slice. So what slows the machine for a second slows both. Shown
//! are the median of the pairs' ratios and, as the spread, the smallest and the largest.

use serde::Serialize;

use crate::columns::{figure, ratio};
use crate::statistics::{largest, median, smallest};

/// A spread that is wider than this share of its median gets a warning.
pub const WIDE: f64 = 0.25;

/// Which ratio is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ratio {
    /// theirs / ours, of costs: twice as fast is 2.
    Speed,
    /// ours / theirs: twice as dear is 2.
    Cost,
}

/// What a row must reach. All that are given must hold.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Target {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_at_least: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_at_most: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_least: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_most: Option<f64>,
    /// `at_most` need not hold where ours is no more than theirs.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub or_theirs: bool,
}

/// Where a row stands in a plot.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Place {
    /// A point of the two curves of a chart, over `x_name`.
    Curve {
        chart: &'static str,
        x_name: &'static str,
        x: f64,
    },
    /// A pair of bars.
    Bars { chart: &'static str },
    /// A point of the lines of `ours` and `theirs`, which have a point for each row.
    Ranges {
        chart: &'static str,
        ours: &'static str,
        theirs: &'static str,
    },
}

#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub line: &'static str,
    pub what: String,
    pub setting: String,
    pub unit: &'static str,
    /// One figure a pair.
    pub ours: Vec<f64>,
    /// As many, of the other module, if there is one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub old: Vec<f64>,
    /// As many; none where a line compares with nothing.
    pub theirs: Vec<f64>,
    /// As many as `theirs`: see [`Samples`].
    pub costs: Vec<f64>,
    pub ratio: Ratio,
    pub target: Target,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
}

/// The figures of both sides, one for each pair or for each slice of a pair.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    pub ours: Vec<f64>,
    pub theirs: Vec<f64>,
    /// Ours / theirs, of figures that were measured one right after the other.
    pub costs: Vec<f64>,
}

impl Samples {
    pub const EMPTY: Self = Self {
        ours: Vec::new(),
        theirs: Vec::new(),
        costs: Vec::new(),
    };

    pub fn push(&mut self, ours: f64, theirs: f64) {
        self.ours.push(ours);
        self.theirs.push(theirs);
        self.costs.push(ours / theirs);
    }

    /// Adds a pair that consists of slices: the median of each column. The median of the slices' costs is not the
    /// cost of the medians, which would compare slices of different seconds.
    pub fn push_slices(&mut self, slices: &Samples) {
        self.ours.push(median(&slices.ours));
        self.theirs.push(median(&slices.theirs));
        self.costs.push(median(&slices.costs));
    }
}

impl Row {
    pub fn new(
        line: &'static str,
        what: impl Into<String>,
        unit: &'static str,
        samples: Samples,
    ) -> Self {
        Self {
            line,
            what: what.into(),
            setting: String::new(),
            unit,
            ours: samples.ours,
            old: Vec::new(),
            theirs: samples.theirs,
            costs: samples.costs,
            ratio: Ratio::Cost,
            target: Target::default(),
            place: None,
        }
    }

    pub fn setting(mut self, setting: impl Into<String>) -> Self {
        self.setting = setting.into();
        self
    }

    pub fn old(mut self, old: Vec<f64>) -> Self {
        self.old = old;
        self
    }

    /// theirs / ours must be at least so much.
    pub fn speed_at_least(mut self, bound: f64) -> Self {
        (self.ratio, self.target.ratio_at_least) = (Ratio::Speed, Some(bound));
        self
    }

    /// ours / theirs must be at least so much, for figures of which more is better.
    pub fn ratio_at_least(mut self, bound: f64) -> Self {
        self.target.ratio_at_least = Some(bound);
        self
    }

    /// ours / theirs must be at most so much.
    pub fn cost_at_most(mut self, bound: f64) -> Self {
        self.target.ratio_at_most = Some(bound);
        self
    }

    pub fn at_least(mut self, bound: f64) -> Self {
        self.target.at_least = Some(bound);
        self
    }

    pub fn at_most(mut self, bound: f64) -> Self {
        self.target.at_most = Some(bound);
        self
    }

    /// Ours must be at most so much, or no more than theirs.
    pub fn at_most_or_theirs(mut self, bound: f64) -> Self {
        self.target.or_theirs = true;
        self.at_most(bound)
    }

    pub fn at(mut self, place: Place) -> Self {
        self.place = Some(place);
        self
    }

    /// One a pair; none where there is nothing to compare with.
    pub fn ratios(&self) -> Vec<f64> {
        let costs = self.costs.iter();
        costs
            .map(|cost| match self.ratio {
                Ratio::Speed => 1.0 / cost,
                Ratio::Cost => *cost,
            })
            .collect()
    }

    /// None where there is no target.
    pub fn is_reached(&self) -> Option<bool> {
        let (ours, theirs, ratio) = (
            median(&self.ours),
            median(&self.theirs),
            median(&self.ratios()),
        );
        let at_least = |value: f64, bound: Option<f64>| bound.map(|bound| value >= bound);
        let at_most = |value: f64, bound: Option<f64>| bound.map(|bound| value <= bound);
        let bounded = at_most(ours, self.target.at_most);
        [
            at_least(ratio, self.target.ratio_at_least),
            at_most(ratio, self.target.ratio_at_most),
            at_least(ours, self.target.at_least),
            bounded.map(|is_within| is_within || (self.target.or_theirs && ours <= theirs)),
        ]
        .into_iter()
        .flatten()
        .reduce(|all, one| all && one)
    }

    /// Whether the pairs differ so much that their median says little.
    pub fn is_wide(&self) -> bool {
        let values = if self.theirs.is_empty() {
            self.ours.clone()
        } else {
            self.ratios()
        };
        (largest(&values) - smallest(&values)) / median(&values) > WIDE
    }

    /// The row of the table, see [`crate::report::Report::table`].
    pub fn cells(&self) -> [String; 9] {
        let ratios = self.ratios();
        let unless_alone = |text: String| {
            if ratios.is_empty() {
                "-".to_owned()
            } else {
                text
            }
        };
        [
            format!("{}: {}", self.line, self.what),
            self.setting.clone(),
            format!("{} {}", figure(median(&self.ours)), self.unit),
            match self.old.is_empty() {
                true => String::new(),
                false => format!("{} {}", figure(median(&self.old)), self.unit),
            },
            unless_alone(format!("{} {}", figure(median(&self.theirs)), self.unit)),
            unless_alone(ratio(median(&ratios))),
            unless_alone(format!(
                "{}..{}",
                ratio(smallest(&ratios)),
                ratio(largest(&ratios))
            )),
            self.target.text(self.unit),
            match self.is_reached() {
                None => "-",
                Some(true) => "ok",
                Some(false) => "below",
            }
            .to_owned(),
        ]
    }
}

impl Target {
    /// All bounds, the absolute ones with their unit.
    fn text(&self, unit: &str) -> String {
        let ratio = |sign: &str, bound: f64| format!("{sign} {bound} ×");
        let value = |sign: &str, bound: f64| format!("{sign} {bound} {unit}").trim_end().to_owned();
        let or_theirs = if self.or_theirs { " or theirs" } else { "" };
        let bounds: Vec<String> = [
            self.ratio_at_least.map(|bound| ratio("≥", bound)),
            self.ratio_at_most.map(|bound| ratio("≤", bound)),
            self.at_least.map(|bound| value("≥", bound)),
            self.at_most.map(|bound| value("≤", bound) + or_theirs),
        ]
        .into_iter()
        .flatten()
        .collect();
        if bounds.is_empty() {
            "-".to_owned()
        } else {
            bounds.join(", ")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ours: &[f64], theirs: &[f64]) -> Row {
        let mut samples = Samples::default();
        for (ours, theirs) in ours.iter().zip(theirs) {
            samples.push(*ours, *theirs);
        }
        samples.ours = ours.to_vec();
        Row::new("line", "what", "ns", samples)
    }

    #[test]
    fn slices_are_compared_with_their_neighbours() {
        // The machine slows down by half: each slice costs the same on both sides, the medians do not.
        let mut slices = Samples::default();
        for (ours, theirs) in [(10.0, 10.0), (10.0, 20.0), (20.0, 20.0)] {
            slices.push(ours, theirs);
        }
        let mut samples = Samples::default();
        samples.push_slices(&slices);
        assert_eq!((samples.ours[0], samples.theirs[0]), (10.0, 20.0));
        assert_eq!(Row::new("line", "what", "ns", samples).ratios(), [1.0]);
    }

    #[test]
    fn speed_is_judged_by_the_median_of_the_pairs_ratios() {
        // Ratios 2, 0.5 and 0.5, though the medians of both sides are equal.
        let row = row(&[10.0, 20.0, 30.0], &[20.0, 10.0, 15.0]);
        assert_eq!(row.clone().speed_at_least(0.5).is_reached(), Some(true));
        assert_eq!(row.speed_at_least(0.51).is_reached(), Some(false));
    }

    #[test]
    fn cost_and_figure_must_both_hold() {
        let row = row(&[9.0], &[10.0]);
        assert_eq!(
            row.clone().cost_at_most(0.9).at_most(9.0).is_reached(),
            Some(true)
        );
        assert_eq!(
            row.clone().cost_at_most(0.9).at_most(8.9).is_reached(),
            Some(false)
        );
        assert_eq!(
            row.cost_at_most(0.89).at_most(9.0).is_reached(),
            Some(false)
        );
    }

    #[test]
    fn bound_need_not_hold_where_theirs_is_no_better() {
        assert_eq!(
            row(&[12.0], &[12.0]).at_most_or_theirs(10.0).is_reached(),
            Some(true)
        );
        assert_eq!(
            row(&[12.0], &[11.0]).at_most_or_theirs(10.0).is_reached(),
            Some(false)
        );
        assert_eq!(
            row(&[9.0], &[1.0]).at_most_or_theirs(10.0).is_reached(),
            Some(true)
        );
    }

    #[test]
    fn row_without_target_is_not_judged() {
        assert_eq!(row(&[1.0], &[]).is_reached(), None);
        assert_eq!(row(&[1.0], &[]).at_least(1.0).is_reached(), Some(true));
    }

    #[test]
    fn wide_spreads_are_seen() {
        assert!(!row(&[1.0, 1.1, 1.2], &[1.0, 1.0, 1.0]).is_wide());
        assert!(row(&[1.0, 1.1, 1.3], &[1.0, 1.0, 1.0]).is_wide());
    }
}
