//! The server and the module that are tested: `DSYNC_TEST_SERVER` and `DSYNC_TEST_MODULE` name them.

use std::path::{Path, PathBuf};

/// The server that is tested: a name to look up on PATH, or an absolute path.
pub(crate) fn server_program() -> String {
    absolute(std::env::var("DSYNC_TEST_SERVER").unwrap_or("redis-server".to_owned()))
}

/// A path as an absolute one, because servers run in other directories; a name to look up on PATH as it is. Links are
/// not resolved: Debian's `redis-server` is a link, and the program behind it goes by the name it was called by.
pub(crate) fn absolute(program: String) -> String {
    if !program.contains('/') {
        return program;
    }
    std::path::absolute(&program)
        .ok()
        .and_then(|path| path.into_os_string().into_string().ok())
        .unwrap_or(program)
}

/// The module under test.
#[track_caller]
pub fn module_path() -> PathBuf {
    let path = match std::env::var_os("DSYNC_TEST_MODULE") {
        Some(path) => PathBuf::from(path),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release/libdsync.so"),
    };
    match path.canonicalize() {
        Ok(path) => path,
        Err(error) => panic!(
            "no module at {} ({error}): `cargo build --release` makes it, DSYNC_TEST_MODULE names another",
            path.display()
        ),
    }
}
