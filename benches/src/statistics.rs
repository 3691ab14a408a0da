//! Medians, percentiles and Jain's fairness index.
//!
//! There are no means: one interruption by another process would move them.

/// The middle of the values, or the mean of the two in the middle. NaN where there are none.
pub fn median(values: &[f64]) -> f64 {
    let sorted = sorted(values);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// The smallest value that at least `percent` of all values do not exceed (nearest rank). NaN where there are none.
pub fn percentile(values: &[f64], percent: f64) -> f64 {
    let sorted = sorted(values);
    // Less by a rounding error, which would otherwise make the rank one too high.
    let rank = (percent * sorted.len() as f64 / 100.0 - 1e-6).ceil() as usize;
    sorted
        .get(rank.max(1) - 1)
        .or(sorted.last())
        .copied()
        .unwrap_or(f64::NAN)
}

pub fn smallest(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NAN, f64::min)
}

pub fn largest(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NAN, f64::max)
}

/// Jain's index: 1 where all shares are equal, 1/n where one has everything.
pub fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    sum * sum / (shares.len() as f64 * squares)
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_takes_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn percentile_is_the_nearest_rank() {
        let values: Vec<f64> = (1..=1000).map(f64::from).collect();
        assert_eq!(percentile(&values, 50.0), 500.0);
        assert_eq!(percentile(&values, 99.9), 999.0);
        assert_eq!(percentile(&values, 100.0), 1000.0);
        assert_eq!(percentile(&values, 0.0), 1.0);
        assert_eq!(percentile(&[7.0], 99.9), 7.0);
        assert!(percentile(&[], 50.0).is_nan());
    }

    #[test]
    fn smallest_and_largest_ignore_the_order() {
        assert_eq!(smallest(&[2.0, 1.0, 3.0]), 1.0);
        assert_eq!(largest(&[2.0, 3.0, 1.0]), 3.0);
    }

    #[test]
    fn jain_is_one_for_equal_shares_and_one_of_n_for_one_taker() {
        assert_eq!(jain(&[5.0, 5.0, 5.0, 5.0]), 1.0);
        assert_eq!(jain(&[8.0, 0.0, 0.0, 0.0]), 0.25);
    }
}
