//! `dsync info`: who holds a key, who waits for it, and what else the server's INFO of it says.
//!
//! The fields are the server's own, so that one that a later version adds is shown, too.

mod fields;
mod lines;

use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::thread;
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::args;
use crate::connect::Node;
use crate::failure::{Failure, Result, Status};
use crate::paint::Paint;
use crate::servers::Servers;
use crate::text::{print, quoted, with_key};
pub use fields::{Info, number, of_reply, rows, text};
pub use lines::lines;

/// Between two looks with `--watch`.
const PAUSE: Duration = Duration::from_secs(1);

pub fn run(servers: &Servers, options: &args::Info, out: &mut impl Write) -> Result<()> {
    let mut node = servers.first()?;
    let info = ask(servers, &mut node, options)?;
    if options.watch {
        return watch(servers, node, info, options, out);
    }
    match info {
        Some(info) => Ok(show(&info, options, out)?),
        None => Err(Failure::new(Status::Nothing, nothing(options))),
    }
}

fn nothing(options: &args::Info) -> String {
    format!("there is no key {}", quoted(options.key.as_bytes()))
}

fn ask(servers: &Servers, node: &mut Node, options: &args::Info) -> Result<Option<Info>> {
    let key = options.key.as_bytes();
    let (_, reply) = servers.ask_about_any_type(node, key, |family| {
        let mut command = family.command("INFO", key);
        command.arg("COUNT").arg(options.count).to_owned()
    })?;
    Ok(of_reply(node.name(), servers.login.db(), key, &reply))
}

/// Shows the key again and again, until somebody ends this process. A server that is lost is told, and asked again.
fn watch(
    servers: &Servers,
    node: Node,
    info: Option<Info>,
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
            Ok(None) => with_key(
                json!({ "key": null, "type": null }),
                Some(options.key.as_bytes()),
            ),
            Err(failure) => json!({ "error": failure.first_line() }),
        };
        if is_screen {
            write!(out, "\x1b[H\x1b[2J")?;
        }
        if is_screen || shown.as_ref() != Some(&now) {
            match &looked {
                Ok(Some(info)) => show(info, options, out)?,
                Ok(None) => print(out, options.json, &now, &nothing(options))?,
                Err(failure) => print(out, options.json, &now, failure.first_line())?,
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
fn lasting(info: &Info) -> Json {
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

fn show(info: &Info, options: &args::Info, out: &mut impl Write) -> io::Result<()> {
    if options.json {
        return writeln!(out, "{}", Json::Object(info.clone()));
    }
    Paint::of(&io::stdout()).write(out, &lines(options.key.as_bytes(), info))
}
