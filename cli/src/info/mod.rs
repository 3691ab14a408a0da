//! `dsync info`: who holds a key, who waits for it, and what else the server's INFO of it says.
//!
//! The fields are the server's own, so that one that a later version adds is shown, too.

mod fields;
mod lines;

use std::io::{self, IsTerminal, Write};
use std::thread;
use std::time::Duration;

use redis::Value;
use serde_json::{Map, Value as Json, json};

use crate::args;
use crate::connect::Node;
use crate::failure::{Failure, Result, Status};
use crate::family;
use crate::paint::Paint;
use crate::servers::Servers;
use crate::text::printable;
pub use fields::of_reply;
pub use lines::lines;

/// Between two looks with `--watch`.
const PAUSE: Duration = Duration::from_secs(1);

pub fn run(servers: &Servers, options: &args::Info, out: &mut impl Write) -> Result<()> {
    let mut node = servers.first()?;
    let info = ask(servers, &mut node, options)?;
    if !options.watch {
        let name = printable(options.key.as_bytes());
        let nothing = || Failure::new(Status::Nothing, format!("there is no key '{name}'"));
        let info = info.ok_or_else(nothing)?;
        return Ok(show(&info, options, out)?);
    }
    watch(servers, node, info, options, out)
}

fn ask(
    servers: &Servers,
    node: &mut Node,
    options: &args::Info,
) -> Result<Option<Map<String, Json>>> {
    let command = |prefix: &str| {
        let mut info = redis::cmd(&format!("{prefix}.INFO"));
        info.arg(&options.key)
            .arg("COUNT")
            .arg(options.count)
            .to_owned()
    };
    let (_, reply): (_, Value) = family::ask(servers, node, &options.key, command)?;
    let db = servers.login.db();
    Ok(of_reply(node.name(), db, options.key.as_bytes(), &reply))
}

/// Shows the key again and again, until somebody ends this process. A server that is lost is told, and asked again.
fn watch(
    servers: &Servers,
    node: Node,
    info: Option<Map<String, Json>>,
    options: &args::Info,
    out: &mut impl Write,
) -> Result<()> {
    let is_screen = io::stdout().is_terminal() && !options.json;
    let mut node = Some(node);
    let mut shown = None;
    let mut looked: Result<_> = Ok(info);
    loop {
        let now = match &looked {
            Ok(Some(info)) => lasting(info),
            Ok(None) => Json::Null,
            Err(failure) => json!({ "error": failure.first_line() }),
        };
        if is_screen {
            write!(out, "\x1b[H\x1b[2J")?;
        }
        if is_screen || shown.as_ref() != Some(&now) {
            match &looked {
                Ok(Some(info)) => show(info, options, out)?,
                Ok(None) if options.json => {
                    writeln!(out, "{}", json!({ "key": options.key, "type": null }))?;
                }
                Ok(None) => writeln!(
                    out,
                    "there is no key '{}'",
                    printable(options.key.as_bytes())
                )?,
                Err(_) if options.json => writeln!(out, "{now}")?,
                Err(failure) => writeln!(out, "{}", failure.first_line())?,
            }
            out.flush()?;
            shown = Some(now);
        }
        thread::sleep(PAUSE);
        looked = match node.take().map_or_else(|| servers.first(), Ok) {
            Ok(mut again) => {
                let looked = ask(servers, &mut again, options);
                node = looked.is_ok().then_some(again);
                looked
            }
            Err(failure) => Err(failure),
        };
        if let Err(failure) = &looked
            && failure.status != Status::Unreachable
        {
            return looked.map(drop);
        }
    }
}

/// Returns what does not change with the clock alone.
fn lasting(info: &Map<String, Json>) -> Json {
    let lasts = |(name, _): &(&String, &Json)| !name.ends_with("_ms");
    let rows = |value: &Json| match value {
        Json::Array(rows) => rows
            .iter()
            .filter_map(Json::as_object)
            .map(lasting)
            .collect(),
        other => other.clone(),
    };
    let fields = info.iter().filter(lasts);
    Json::Object(
        fields
            .map(|(name, value)| (name.clone(), rows(value)))
            .collect(),
    )
}

fn show(info: &Map<String, Json>, options: &args::Info, out: &mut impl Write) -> io::Result<()> {
    if options.json {
        return writeln!(out, "{}", Json::Object(info.clone()));
    }
    let paint = Paint::of(&io::stdout());
    lines(info)
        .iter()
        .try_for_each(|(tone, line)| writeln!(out, "{}", paint.line(*tone, line)))
}
