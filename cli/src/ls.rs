//! `dsync ls`: who holds what.

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

use serde_json::Value as Json;

use crate::args;
use crate::duration::short_ms;
use crate::failure::Result;
use crate::glob::Pattern;
use crate::holds::{self, Hold};
use crate::paint::Tone;
use crate::servers::Servers;
use crate::text::{Side, Table, name, or_dash};

pub fn run(servers: &Servers, options: &args::Ls, out: &mut impl Write) -> Result<()> {
    let mut nodes = servers.primaries()?;
    let pattern = options.pattern.as_ref();
    let pattern = pattern.map(|pattern| Pattern::new(pattern.as_bytes()));
    let mut holds = Vec::new();
    for node in &mut nodes {
        let of_node = holds::list(node, options.owner.as_deref())?;
        let chosen = of_node
            .into_iter()
            .filter(|hold| is_chosen(hold, pattern.as_ref(), options));
        holds.extend(chosen.map(|hold| (node.name().to_owned(), hold)));
    }
    if options.json {
        let rows: Vec<Json> = holds
            .iter()
            .map(|(server, hold)| hold.json(server))
            .collect();
        writeln!(out, "{}", Json::Array(rows))?;
        return Ok(());
    }
    // The longest held first: what is stuck stands on top.
    holds.sort_by_key(|(_, hold)| std::cmp::Reverse(hold.held_ms));
    let named: Vec<(&str, &Hold)> = holds
        .iter()
        .map(|(node, hold)| (node.as_str(), hold))
        .collect();
    table(&named).write(out, &io::stdout())?;
    Ok(())
}

fn is_chosen(hold: &Hold, pattern: Option<&Pattern>, options: &args::Ls) -> bool {
    let fits = |pattern: &Pattern| hold.key().is_some_and(|key| pattern.fits(key));
    pattern.is_none_or(fits)
        && options
            .family
            .is_none_or(|family| family.name() == hold.family)
        && (options.older_than).is_none_or(|time| u128::from(hold.held_ms) >= time.as_millis())
}

/// Returns the table of holds. It names databases and servers only if there are several.
pub fn table(holds: &[(&str, &Hold)]) -> Table {
    let db = |hold: &Hold| hold.place.as_ref().map_or(0, |place| place.db);
    let has_databases = holds.iter().any(|(_, hold)| db(hold) != 0);
    let has_nodes = holds.iter().any(|(node, _)| *node != holds[0].0);
    let mut headings = vec![("KEY", Side::Left)];
    headings.extend(has_databases.then_some(("DB", Side::Right)));
    headings.extend([
        ("TYPE", Side::Left),
        ("OWNER", Side::Left),
        ("CLIENT", Side::Right),
        ("FENCE", Side::Right),
        ("HELD", Side::Right),
        ("LEASE LEFT", Side::Right),
    ]);
    headings.extend(has_nodes.then_some(("SERVER", Side::Left)));
    let mut table = Table::new(&headings);
    for (node, hold) in holds {
        let mut row = vec![hold.key().map_or("-".into(), name)];
        row.extend(has_databases.then(|| db(hold).to_string()));
        row.push(hold.family.clone());
        row.push(or_dash(hold.owner.as_deref()));
        row.push(hold.client.map_or("-".into(), |id| id.to_string()));
        row.push(hold.fence.to_string());
        row.push(short_ms(hold.held_ms));
        let (tone, left) = match hold.lease_left_ms {
            0 => (Tone::Bad, "overdue".into()),
            ms => (Tone::Plain, short_ms(ms)),
        };
        row.push(left);
        row.extend(has_nodes.then(|| (*node).to_owned()));
        table.row(tone, row);
    }
    table
}
