//! `dsync revoke`: ends a hold by its fence, or all holds of an owner.

use std::io::{self, BufRead, IsTerminal, Write};

use crate::args;
use crate::connect::Node;
use crate::failure::{Failure, Result, Status};
use crate::holds::{self, FAMILIES, Hold};
use crate::ls;
use crate::servers::Servers;
use crate::text::printable;

pub fn run(servers: &Servers, options: &args::Revoke, out: &mut impl Write) -> Result<()> {
    match (&options.key, options.fence, &options.owner) {
        (Some(key), Some(fence), None) => one(servers, key, fence, out),
        (_, _, Some(owner)) => all_of(servers, owner, options.yes, out),
        _ => Err(Failure::new(
            Status::Usage,
            "name a key and a fence, or an --owner",
        )),
    }
}

/// Ends one hold. The command differs by the family of the key, so each is tried until one has the right type.
fn one(servers: &Servers, key: &str, fence: u64, out: &mut impl Write) -> Result<()> {
    let mut node = servers.first()?;
    let name = printable(key.as_bytes());
    for (_, prefix) in FAMILIES {
        let command = format!("{prefix}.REVOKE");
        let mut revoke = redis::cmd(&command);
        revoke.arg(key).arg(fence);
        match servers.ask_about_key::<u64>(&mut node, &revoke)? {
            Ok(1) => {
                writeln!(out, "revoked {} {fence}", name)?;
                return Ok(());
            }
            Ok(_) => {
                let message = format!(
                    "'{name}' has no hold with the fence {fence}; it may have ended. `dsync ls` lists the holds that live"
                );
                return Err(Failure::new(Status::Nothing, message));
            }
            Err(error) if error.code() == Some("WRONGTYPE") => {}
            Err(error) => return Err(Failure::of_server(&node.peer, &error)),
        }
    }
    let message = format!("'{name}' is no key of dsync: it has another type");
    Err(Failure::new(Status::Nothing, message))
}

/// Ends all holds of an owner, after the user has seen them and agreed.
fn all_of(servers: &Servers, owner: &str, agreed: bool, out: &mut impl Write) -> Result<()> {
    let mut nodes = servers.primaries()?;
    let mut holds = Vec::new();
    for (nth, node) in nodes.iter_mut().enumerate() {
        let of_node = holds::list(node, Some(owner))?;
        holds.extend(of_node.into_iter().map(|hold| (nth, hold)));
    }
    if holds.is_empty() {
        return Err(Failure::new(
            Status::Nothing,
            format!("no hold has an owner that fits '{owner}'"),
        ));
    }
    if !agreed {
        confirm(&nodes, &holds)?;
    }
    let mut ended = 0;
    let mut missed = 0;
    for (nth, hold) in &holds {
        match revoke(&mut nodes[*nth], hold)? {
            true => ended += 1,
            false => missed += 1,
        }
    }
    writeln!(out, "revoked {ended} of {} holds", holds.len())?;
    if missed > 0 {
        let message = format!(
            "{missed} had ended, or their keys are being renamed: look again with `dsync ls`"
        );
        return Err(Failure::new(Status::Nothing, message));
    }
    Ok(())
}

/// Returns whether the hold lived until now.
fn revoke(node: &mut Node, hold: &Hold) -> Result<bool> {
    let prefix = FAMILIES
        .iter()
        .find(|family| family.0 == hold.family)
        .map(|family| family.1);
    let (Some(prefix), Some(place)) = (prefix, &hold.place) else {
        return Ok(false);
    };
    node.select(place.db)?;
    let command = format!("{prefix}.REVOKE");
    let ended: u64 = node.ask(redis::cmd(&command).arg(&place.key).arg(hold.fence))?;
    Ok(ended == 1)
}

/// Shows the holds and asks on the terminal. Without a terminal nobody can agree, so that is an error.
fn confirm(nodes: &[Node], holds: &[(usize, Hold)]) -> Result<()> {
    if !io::stdin().is_terminal() {
        return Err(Failure::new(
            Status::Usage,
            "nobody can be asked here; add --yes to revoke without a question",
        ));
    }
    let named: Vec<(&str, &Hold)> = holds
        .iter()
        .map(|(nth, hold)| (nodes[*nth].name(), hold))
        .collect();
    let mut stderr = io::stderr().lock();
    ls::table(&named).write(&mut stderr)?;
    let number = holds.len();
    write!(
        stderr,
        "Revoke {}? [y/N] ",
        if number == 1 {
            "it".into()
        } else {
            format!("all {number}")
        }
    )?;
    stderr.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Failure::new(Status::Nothing, "nothing was revoked")),
    }
}
