//! Who holds, for people: the default of `owner`.

use std::cell::RefCell;
use std::process;

use crate::text::cut;

/// The longest text that the server takes.
pub(crate) const LONGEST: usize = 128;

thread_local! {
    /// What was found in the process of that number. A mutex that all threads share could stay locked in a child.
    static FOUND: RefCell<(u32, String)> = RefCell::default();
}

/// Returns `user@host:pid`, at most as long as the server allows. The system is asked once in each thread, and again in a
/// child that was forked.
pub(crate) fn default_owner() -> String {
    let pid = process::id();
    FOUND.with_borrow_mut(|found| {
        if found.0 != pid {
            *found = (pid, owner(&user(), &host(), pid));
        }
        found.1.clone()
    })
}

/// What is too long is cut at the end of the host's name.
fn owner(user: &str, host: &str, pid: u32) -> String {
    let process = format!(":{pid}");
    let place = format!("{user}@{host}");
    format!("{}{process}", cut(&place, LONGEST - process.len()))
}

/// The login name of the effective user, or the user's number.
#[cfg(unix)]
fn user() -> String {
    let uid = nix::unistd::geteuid();
    let user = nix::unistd::User::from_uid(uid).ok().flatten();
    user.map_or_else(|| uid.to_string(), |user| user.name)
}

#[cfg(unix)]
fn host() -> String {
    let host = nix::unistd::gethostname().unwrap_or_default();
    host.to_string_lossy().into_owned()
}

#[cfg(not(unix))]
fn user() -> String {
    std::env::var("USERNAME").unwrap_or_default()
}

#[cfg(not(unix))]
fn host() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_owner_is_cut_at_the_end_of_the_host() {
        let long = owner("ann", &"ü".repeat(200), 71);
        assert!(long.len() <= LONGEST && long.len() > LONGEST - 3, "{long}");
        assert!(
            long.starts_with("ann@üü") && long.ends_with("ü:71"),
            "{long}"
        );
    }
}
