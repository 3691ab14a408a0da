//! Tells the compiler from which commit a release is built: `DSYNC_COMMIT`, which INFO shows.
//!
//! Other builds are `unknown`, so that not every new commit builds all tests again.

#![allow(
    clippy::print_stdout,
    reason = "this is how a build script speaks to cargo"
)]

#[path = "build/commit.rs"]
mod commit;

use std::env;
use std::path::Path;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=build/commit.rs");
    let mut shown = None;
    if env::var_os("PROFILE").is_some_and(|profile| profile == "release") {
        let (found, sources) = commit::find(Path::new("."));
        for source in sources {
            println!("cargo:rerun-if-changed={}", source.display());
        }
        shown = found;
    }
    let shown = shown.as_deref().unwrap_or("unknown");
    println!("cargo:rustc-env=DSYNC_COMMIT={shown}");
}
