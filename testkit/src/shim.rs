//! Libraries in C, in `shims/`, that are preloaded into servers. They are compiled when a test needs them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::{fs, process};

/// Held while a library is compiled: all tests of a process write to the same draft.
static COMPILING: Mutex<()> = Mutex::new(());

/// Compiles `shims/NAME.c`, and returns the library. `None`, after a line on standard error, without a C compiler.
pub(crate) fn compiled(name: &str) -> Option<PathBuf> {
    let testkit = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = testkit.join(format!("shims/{name}.c"));
    let folder = testkit.join("../target/shims");
    fs::create_dir_all(&folder).expect("a folder for the libraries");
    let _compiling = COMPILING.lock().unwrap_or_else(PoisonError::into_inner);
    // Other processes may compile the same one, or have it loaded.
    let draft = folder.join(format!("{name}-{}.so", process::id()));
    let library = folder.join(format!("{name}.so"));
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .args([&draft, &source])
        .args(["-ldl", "-lpthread"])
        .status();
    match compiled {
        Ok(status) => assert!(status.success(), "{} does not compile", source.display()),
        Err(_) => {
            eprintln!("skipped: no C compiler");
            return None;
        }
    }
    fs::rename(&draft, &library).expect("the library is moved into place");
    Some(library)
}
