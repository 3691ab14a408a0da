//! Which dsync this is: its version, and the commit that it was built from.

/// The version, from Cargo.toml.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit, from the build script; `unknown` if there was nothing to tell it.
pub(crate) const COMMIT: &str = env!("DSYNC_COMMIT");

/// The version as MODULE LIST shows it: 10203 for 1.2.3.
pub(crate) const NUMBER: i32 = {
    let major = number(env!("CARGO_PKG_VERSION_MAJOR"));
    let minor = number(env!("CARGO_PKG_VERSION_MINOR"));
    10_000 * major + 100 * minor + number(env!("CARGO_PKG_VERSION_PATCH"))
};

/// Cargo has checked that the text is a number.
const fn number(text: &str) -> i32 {
    match i32::from_str_radix(text, 10) {
        Ok(number) => number,
        Err(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::{NUMBER, VERSION};

    #[test]
    fn number_has_two_digits_for_each_part_of_the_version() {
        let (major, minor, patch) = (NUMBER / 10_000, NUMBER / 100 % 100, NUMBER % 100);
        assert_eq!(format!("{major}.{minor}.{patch}"), VERSION);
    }
}
