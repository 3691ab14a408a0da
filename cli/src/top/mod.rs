//! `dsync top`: a live view of what is contended.

mod report;
mod sample;
mod screen;
mod table;
mod view;

use std::io::{self, IsTerminal, Write};
use std::thread;
use std::time::{Instant, SystemTime};

use serde_json::json;

use crate::args;
use crate::connect::Node;
use crate::failure::{Failure, Result, Status};
use crate::holds::Place;
use crate::paint::{self, Paint, Tone};
use crate::revoke::revoke;
use crate::servers::Servers;
use report::Report;
use sample::{Key, Sample};
use screen::{Input, Screen};
use table::table;
use view::{Chosen, Told, View, Wish};

/// How many holders and waiters are shown of a key that is looked into.
const HOLDERS: u32 = 20;

pub fn run(servers: &Servers, options: &args::Top, out: &mut impl Write) -> Result<()> {
    if options.once || options.json {
        return print(servers, options, out);
    }
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        let message =
            "the live view needs a terminal; add --once for one look, or --json for programs";
        return Err(Failure::new(Status::Usage, message));
    }
    // A wrong address is told on the screen of the shell, where it stays.
    let mut nodes = servers.primaries()?;
    let first = Sample::take(&mut nodes, options.count)?;
    watch(servers, options, nodes, first, out)
}

/// Prints what the samples say: once, or for each interval. Where it goes on, a server that does not answer is told, and
/// asked again.
fn print(servers: &Servers, options: &args::Top, out: &mut impl Write) -> Result<()> {
    let mut nodes = Some(servers.primaries()?);
    let mut before = look(servers, &mut nodes, options.count)?;
    loop {
        thread::sleep(options.interval);
        let now = match look(servers, &mut nodes, options.count) {
            Err(failure) if failure.status == Status::Unreachable && !options.once => {
                nodes = None;
                let time = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
                writeln!(
                    out,
                    "{}",
                    json!({ "time": time, "error": failure.first_line() })
                )?;
                out.flush()?;
                continue;
            }
            now => now?,
        };
        let report = Report::of(&before, &now);
        if options.json {
            writeln!(out, "{}", report.json())?;
        } else {
            write(&report, &now, out)?;
        }
        out.flush()?;
        if options.once {
            return Ok(());
        }
        before = now;
    }
}

/// Writes what the live view shows, with all keys.
fn write(report: &Report, now: &Sample, out: &mut impl Write) -> io::Result<()> {
    let mut lines = report.lines();
    lines.push((Tone::Plain, String::new()));
    let keys: Vec<&Key> = now.keys.iter().collect();
    match keys.is_empty() {
        true => lines.push((Tone::Plain, "Nobody waits.".into())),
        false => lines.extend(table(&keys, now.servers.len() > 1).lines()),
    }
    Paint::of(&io::stdout()).write(out, &lines)
}

/// Shows what the servers tell until a key ends it. A server that does not answer is told, and asked again.
fn watch(
    servers: &Servers,
    options: &args::Top,
    nodes: Vec<Node>,
    first: Sample,
    out: &mut impl Write,
) -> Result<()> {
    let screen = Screen::enter()?;
    let mut nodes = Some(nodes);
    let mut view = View::new();
    let mut told = Told::Measuring(first);
    let mut next_look = Instant::now() + options.interval;
    loop {
        screen.draw(out, &view.lines(&told, paint::size().1))?;
        let wish = match screen.next(next_look)? {
            Some(Input::Key(key)) => view.press(key, &told),
            Some(Input::Resized) => Wish::Nothing,
            Some(Input::Signal(signal)) => {
                // The terminal is the shell's again before the process ends by the signal.
                drop(screen);
                signal_hook::low_level::emulate_default_handler(signal)?;
                return Ok(());
            }
            None if view.is_paused => {
                next_look = Instant::now() + options.interval;
                Wish::Nothing
            }
            None => {
                next_look = Instant::now() + options.interval;
                let looked = look(servers, &mut nodes, options.count);
                told = match looked {
                    Ok(now) => told.followed_by(now),
                    Err(failure) => {
                        // Connect anew: after a failover the primary is elsewhere.
                        nodes = None;
                        Told::Failed(failure.to_string())
                    }
                };
                Wish::Look
            }
        };
        match wish {
            Wish::Nothing => continue,
            Wish::End => return Ok(()),
            Wish::Look => {}
            Wish::Revoke(fence) => {
                view.notice = match with_chosen(&view, &mut nodes, |node, chosen| {
                    revoke(node, &chosen.place, &chosen.family, fence)
                }) {
                    Ok(Some(true)) => format!("revoked {fence}"),
                    Ok(Some(false)) => format!("{fence} had ended before"),
                    Ok(None) => "nothing was revoked: its server does not answer".into(),
                    Err(failure) => failure.first_line().to_owned(),
                };
            }
        }
        // What cannot be told of the key is told with the next look at the servers.
        view.info = with_chosen(&view, &mut nodes, |node, chosen| {
            let Place { db, key } = &chosen.place;
            sample::info(node, *db, key, &chosen.family, HOLDERS)
        })
        .ok()
        .flatten()
        .flatten();
    }
}

/// Carries out something with the key that is looked into, if there is one and its server answers.
fn with_chosen<T>(
    view: &View,
    nodes: &mut Option<Vec<Node>>,
    act: impl FnOnce(&mut Node, &Chosen) -> Result<T>,
) -> Result<Option<T>> {
    let (Some(chosen), Some(nodes)) = (view.chosen(), nodes) else {
        return Ok(None);
    };
    match nodes.iter_mut().find(|node| node.name() == chosen.server) {
        Some(node) => act(node, chosen).map(Some),
        None => Ok(None),
    }
}

fn look(servers: &Servers, nodes: &mut Option<Vec<Node>>, count: u32) -> Result<Sample> {
    let nodes = match nodes {
        Some(nodes) => nodes,
        None => nodes.insert(servers.primaries()?),
    };
    Sample::take(nodes, count)
}
