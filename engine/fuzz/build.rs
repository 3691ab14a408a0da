//! The module shows from which commit it was built.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-env=DSYNC_COMMIT=unknown");
}
