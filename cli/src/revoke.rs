//! `dsync revoke`: ends a hold by its fence, or all holds of an owner.

use std::io::{self, BufRead, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;

use serde_json::json;

use crate::args;
use crate::connect::Node;
use crate::failure::{Failure, Result, Status, usage};
use crate::family::Family;
use crate::holds::{self, Hold, Place};
use crate::ls;
use crate::servers::Servers;
use crate::text::{counted, name, print, quoted, with_key};

pub fn run(servers: &Servers, options: &args::Revoke, out: &mut impl Write) -> Result<()> {
    match (&options.key, options.fence, &options.owner) {
        (Some(key), Some(fence), None) => one(servers, key.as_bytes(), fence, options.json, out),
        (_, _, Some(owner)) => all_of(servers, owner, options, out),
        _ => Err(usage("name a key and a fence, or an --owner")),
    }
}

fn one(servers: &Servers, key: &[u8], fence: u64, json: bool, out: &mut impl Write) -> Result<()> {
    let mut node = servers.first()?;
    let revoke = |family: Family| family.command("REVOKE", key).arg(fence).to_owned();
    if let (_, 1) = servers.ask_about_any_type::<u64>(&mut node, key, revoke)? {
        let told = json!({ "key": null, "fence": fence, "revoked": 1 });
        let text = format!("revoked {} {fence}", name(key));
        return Ok(print(out, json, &with_key(told, Some(key)), &text)?);
    }
    let key = quoted(key);
    let message = format!(
        "{key} has no hold with the fence {fence}; it may have ended. `dsync ls` lists the holds that live"
    );
    Err(Failure::new(Status::Nothing, message))
}

/// Ends all holds of an owner, after the user has seen them and agreed.
fn all_of(
    servers: &Servers,
    owner: &str,
    options: &args::Revoke,
    out: &mut impl Write,
) -> Result<()> {
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
    if !options.yes {
        confirm(&nodes, &holds)?;
    }
    let revoked = |ended| format!("revoked {ended} of {}", counted(holds.len() as u64, "hold"));
    let mut ended = 0;
    for (nth, hold) in &holds {
        let Some(place) = &hold.place else { continue };
        let is_ended = revoke(&mut nodes[*nth], place, &hold.family, hold.fence);
        ended += usize::from(is_ended.map_err(|failure| {
            Failure::new(
                failure.status,
                format!("{failure}\n{} before that", revoked(ended)),
            )
        })?);
    }
    let missed = holds.len() - ended;
    let told = json!({ "revoked": ended, "missed": missed });
    print(out, options.json, &told, &revoked(ended))?;
    if missed > 0 {
        let message = format!(
            "{missed} had ended, or their keys are being renamed: look again with `dsync ls`"
        );
        return Err(Failure::new(Status::Nothing, message));
    }
    Ok(())
}

/// Ends one hold. Returns whether it lived until now.
pub fn revoke(node: &mut Node, place: &Place, family: &str, fence: u64) -> Result<bool> {
    let Some(family) = Family::named(family) else {
        return Ok(false);
    };
    node.select(place.db)?;
    let ended: Result<u64> = node.ask(family.command("REVOKE", &place.key).arg(fence));
    let of_key = |failure: Failure| {
        Failure::new(failure.status, format!("{}: {failure}", quoted(&place.key)))
    };
    Ok(ended.map_err(of_key)? == 1)
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
    ls::table(&named).write(&mut stderr, &io::stderr())?;
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
