//! How a server is started whose instructions are counted: under valgrind, with as little as possible that depends on
//! the clock. Its cron is called once a second, the allocator keeps the pages that were freed, and the AOF is not
//! synced.

use std::path::Path;

/// What the server is told besides.
pub const SETTINGS: [(&str, &str); 4] = [
    ("enable-debug-command", "local"),
    ("hz", "1"),
    ("dynamic-hz", "no"),
    ("appendfsync", "no"),
];

/// Settings of the allocator: for Debian's library, and for the one that the server brings along.
pub const ENVIRONMENT: [(&str, &str); 2] = [("MALLOC_CONF", KEEP), ("JE_MALLOC_CONF", KEEP)];
const KEEP: &str = "dirty_decay_ms:-1,muzzy_decay_ms:-1";

/// What stands before the server's program, which may be a shell script.
pub fn prefix(directory: &Path) -> Vec<String> {
    let directory = directory.display();
    vec![
        "valgrind".to_owned(),
        "--tool=callgrind".to_owned(),
        "--trace-children=yes".to_owned(),
        "--dump-before=debugCommand".to_owned(),
        format!("--callgrind-out-file={directory}/callgrind.%p"),
        format!("--log-file={directory}/valgrind.log"),
    ]
}
