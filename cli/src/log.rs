//! `dsync log`: the last ends that no holder asked for.

mod follow;
mod row;

use std::io::Write;

use serde_json::Value as Json;

use crate::args;
use crate::failure::Result;
use crate::servers::Servers;
use row::{ask, sort};

pub fn run(servers: &Servers, options: &args::Log, out: &mut impl Write) -> Result<()> {
    if options.follow {
        return follow::run(servers, options, out);
    }
    let mut nodes = servers.primaries()?;
    let mut rows = Vec::new();
    for node in &mut nodes {
        let of_node = ask(node, options.count)?;
        rows.extend(of_node.into_iter().map(|row| (node.name().to_owned(), row)));
    }
    sort(&mut rows);
    if options.json {
        let rows: Vec<Json> = rows.iter().map(|(server, row)| row.json(server)).collect();
        writeln!(out, "{}", Json::Array(rows))?;
        return Ok(());
    }
    for (server, row) in &rows {
        let is_one_of_several = nodes.len() > 1;
        writeln!(out, "{}", row.line(is_one_of_several.then_some(server)))?;
    }
    Ok(())
}
