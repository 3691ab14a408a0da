//! The processes that descend from this one, as Linux lists them in /proc.
//!
//! A process whose parent ends becomes a child of this one, which is the subreaper of its descendants. So each
//! descendant is found from here, whatever group or session it made. A list that is read while processes begin and end
//! can miss some: who must have all asks again until there is none. The list of processes that are stopped is exact.

use std::collections::HashSet;
use std::fs;

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::{Pid, getsid};

/// A process that has not ended.
pub struct Process {
    pub pid: Pid,
    pub session: Pid,
    /// The name of its program, as the kernel has it.
    pub name: String,
}

/// Makes this process the parent of descendants whose own has ended.
#[cfg(target_os = "linux")]
pub fn adopt_orphans() {
    // Without it, process 1 is their parent.
    let _ = nix::sys::prctl::set_child_subreaper(true);
}

#[cfg(not(target_os = "linux"))]
pub fn adopt_orphans() {}

/// The descendants at one moment.
pub struct Listing {
    pub processes: Vec<Process>,
    /// Whether each child of this process worked when it was looked at. One that had ended may have left children that
    /// are not listed.
    pub is_whole: bool,
}

/// Lists the descendants of this process, without those children that `others` has and what descends from them. `found`
/// is called for each at once. `None` if the kernel has no such lists.
pub fn list(others: &HashSet<Pid>, mut found: impl FnMut(Pid)) -> Option<Listing> {
    let mut queue: Vec<Pid> = children(Pid::this())?;
    queue.retain(|pid| !others.contains(pid));
    // A process that is given to another parent meanwhile is listed twice.
    let mut seen: HashSet<Pid> = queue.iter().copied().collect();
    queue.iter().copied().for_each(&mut found);
    let own = seen.clone();
    let (mut processes, mut is_whole) = (Vec::new(), true);
    while let Some(pid) = queue.pop() {
        match read(pid) {
            Some(process) => processes.push(process),
            None => is_whole &= !own.contains(&pid),
        }
        for young in children(pid).unwrap_or_default() {
            if seen.insert(young) {
                found(young);
                queue.push(young);
            }
        }
    }
    Some(Listing {
        processes,
        is_whole,
    })
}

/// Returns the children of a process: those of all its threads. `None` if there is no list.
pub fn children(pid: Pid) -> Option<Vec<Pid>> {
    let mut all = None;
    for thread in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        // A thread may end before it is asked.
        if let Ok(list) = fs::read_to_string(thread.path().join("children")) {
            let pids = list.split_ascii_whitespace().flat_map(str::parse);
            all.get_or_insert_with(Vec::new)
                .extend(pids.map(Pid::from_raw));
        }
    }
    all
}

/// Reads what the kernel says about a process. `None` if it has ended.
fn read(pid: Pid) -> Option<Process> {
    if let Ok(stat) = fs::read(format!("/proc/{pid}/stat")) {
        return parse(pid, &String::from_utf8_lossy(&stat));
    }
    // /proc may hide the processes of other users (hidepid).
    (kill(pid, None) == Err(Errno::EPERM)).then_some(Process {
        pid,
        session: getsid(Some(pid)).ok()?,
        name: "?".into(),
    })
}

fn parse(pid: Pid, stat: &str) -> Option<Process> {
    // The name is anything, parentheses too.
    let (before, after) = stat.rsplit_once(") ")?;
    let (_, name) = before.split_once(" (")?;
    let fields: Vec<&str> = after.split_ascii_whitespace().collect();
    let (state, session, threads) = (fields.first()?, fields.get(3)?, fields.get(17)?);
    // A zombie works no more, unless it is the first of several threads.
    let has_ended = matches!(*state, "Z" | "X") && matches!(*threads, "0" | "1");
    (!has_ended).then_some(Process {
        pid,
        session: Pid::from_raw(session.parse().ok()?),
        name: name.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_parentheses_are_read_and_zombies_are_not() {
        let read = |state: &str, threads: u32| {
            let rest = "0 -1 0 0 0 0 0 0 0 0 0 20 0";
            let line = format!("7 (a) (b) {state} 1 6 5 {rest} {threads} 0 9");
            parse(Pid::from_raw(7), &line)
        };
        let process = read("S", 1).unwrap();
        assert_eq!(process.name, "a) (b");
        assert_eq!(process.session, Pid::from_raw(5));
        assert!(read("Z", 1).is_none());
        assert!(read("Z", 2).is_some(), "its other threads work");
    }
}
