//! Passwords from files, and those that `ps` shows.

use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::address;
use crate::args;
use crate::failure::{Failure, Result, Status};

/// The bits of a mode that let others do more than a group that reads.
const TOO_OPEN: u32 = 0o037;

/// Reads the first line of a file, which only its owner and perhaps a group may read.
pub fn read(path: &Path) -> Result<String> {
    let failed = |why: String| Failure::new(Status::System, format!("{}: {why}", path.display()));
    let mut file = File::open(path).map_err(|error| failed(error.to_string()))?;
    let metadata = file.metadata().map_err(|error| failed(error.to_string()))?;
    check_mode(&metadata).map_err(failed)?;
    let mut text = String::new();
    file.read_to_string(&mut text)
        .map_err(|error| failed(error.to_string()))?;
    match text.lines().next() {
        Some(password) if !password.is_empty() => Ok(password.to_owned()),
        _ => Err(failed("its first line is empty".into())),
    }
}

/// Checks that only the owner and perhaps a group may read a file with a password. Returns what is wrong.
pub fn check_mode(metadata: &Metadata) -> std::result::Result<(), String> {
    let mode = metadata.mode() & 0o777;
    // A pipe (`<(pass show redis)`) has no path for others.
    if metadata.is_file() && mode & TOO_OPEN != 0 {
        return Err(format!(
            "others may use this file, which has a secret (its mode is {mode:o}); do `chmod 600` first"
        ));
    }
    Ok(())
}

/// Whether a URL has a password.
pub fn is_in(url: &str) -> bool {
    address::read(url).is_ok_and(|info| info.redis_settings().password().is_some())
}

/// Returns a warning if the command line, which `ps` shows to others, has a password.
pub fn warning(options: &args::Server) -> Option<&'static str> {
    let is_shown = options.pass.is_some()
        || options.sentinel_pass.is_some()
        || options.url.iter().any(|url| is_in(url));
    is_shown.then_some(
        "other users of this machine can see the password on the command line (ps): put it into a file for \
         --password-file, or into DSYNC_URL, REDISCLI_AUTH or a profile",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_of_the_command_line_are_warned_of() {
        let mut given = args::Server {
            url: ["redis://alice@h", "rediss://h", "no url"]
                .map(String::from)
                .to_vec(),
            ..args::Server::default()
        };
        assert_eq!(warning(&given), None);
        given.url.push("redis://alice:secret@h".into());
        assert!(warning(&given).is_some_and(|warning| !warning.contains("secret")));
        given.url = vec!["unix:///socket?pass=secret".into()];
        assert!(warning(&given).is_some());
        given.url = vec!["alice:secret@h:7000".into()];
        assert!(warning(&given).is_some());
        given.url.clear();
        given.sentinel_pass = Some("secret".into());
        assert!(warning(&given).is_some());
    }
}
