//! `dsync top`: a live view of what is contended.

mod report;
mod sample;

use std::io::{self, IsTerminal, Write};
use std::thread;
use std::time::{Duration, Instant};

use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use crossterm::{cursor, execute, queue, style, terminal};

use crate::args;
use crate::connect::Node;
use crate::failure::{Failure, Result, Status};
use crate::servers::Servers;
use report::Report;
use sample::Sample;

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
    let _screen = Screen::enter()?;
    watch(servers, options, nodes, first, out)
}

/// Prints what the samples say: once, or for each interval.
fn print(servers: &Servers, options: &args::Top, out: &mut impl Write) -> Result<()> {
    let mut nodes = servers.primaries()?;
    let mut before = Sample::take(&mut nodes, options.count)?;
    loop {
        thread::sleep(options.interval);
        let now = Sample::take(&mut nodes, options.count)?;
        let report = Report::of(&before, &now);
        if options.json {
            writeln!(out, "{}", report.json())?;
        } else {
            report
                .lines(None)
                .iter()
                .try_for_each(|line| writeln!(out, "{line}"))?;
        }
        out.flush()?;
        if options.once {
            return Ok(());
        }
        before = now;
    }
}

/// Shows the samples until a key ends it. A server that does not answer is told, and asked again.
fn watch(
    servers: &Servers,
    options: &args::Top,
    nodes: Vec<Node>,
    first: Sample,
    out: &mut impl Write,
) -> Result<()> {
    let mut nodes = Some(nodes);
    let mut before = first;
    draw(out, &["dsync top: measuring …".to_owned()])?;
    loop {
        if is_to_end(options.interval)? {
            return Ok(());
        }
        let looked = look(servers, &mut nodes, options.count);
        match looked {
            Ok(now) => {
                draw(out, &Report::of(&before, &now).lines(Some(height())))?;
                before = now;
            }
            Err(failure) => {
                // Connect anew: after a failover the primary is elsewhere.
                nodes = None;
                let mut lines = vec![
                    "dsync top: no answer; trying again".to_owned(),
                    String::new(),
                ];
                lines.extend(failure.to_string().lines().map(str::to_owned));
                draw(out, &lines)?;
            }
        }
    }
}

fn look(servers: &Servers, nodes: &mut Option<Vec<Node>>, count: u32) -> Result<Sample> {
    let nodes = match nodes {
        Some(nodes) => nodes,
        None => nodes.insert(servers.primaries()?),
    };
    Sample::take(nodes, count)
}

/// Waits for an interval. Returns whether the user wants to end: q, Escape or Ctrl-C.
fn is_to_end(interval: Duration) -> Result<bool> {
    let until = Instant::now() + interval;
    loop {
        if !event::poll(until.saturating_duration_since(Instant::now()))? {
            return Ok(false);
        }
        if let Event::Key(key) = event::read()? {
            let is_ctrl_c =
                key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
            let ends = matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) || is_ctrl_c;
            if ends && key.kind != KeyEventKind::Release {
                return Ok(true);
            }
        }
    }
}

fn height() -> usize {
    terminal::size().map_or(24, |size| usize::from(size.1))
}

/// Draws the lines over the earlier ones, so that nothing flickers. Lines that are too long are cut.
fn draw(out: &mut impl Write, lines: &[String]) -> io::Result<()> {
    let width = terminal::size().map_or(80, |size| usize::from(size.0));
    for (nth, line) in lines.iter().enumerate() {
        let line: String = line.chars().take(width).collect();
        let row = u16::try_from(nth).unwrap_or(u16::MAX);
        queue!(
            out,
            cursor::MoveTo(0, row),
            style::Print(line),
            terminal::Clear(terminal::ClearType::UntilNewLine)
        )?;
    }
    let end = u16::try_from(lines.len()).unwrap_or(u16::MAX);
    if usize::from(end) < height() {
        queue!(
            out,
            cursor::MoveTo(0, end),
            terminal::Clear(terminal::ClearType::FromCursorDown)
        )?;
    }
    out.flush()
}

/// The terminal's other screen, without echo and cursor. Dropping it brings back the shell's, also after a panic.
struct Screen;

impl Screen {
    fn enter() -> io::Result<Screen> {
        terminal::enable_raw_mode()?;
        let screen = Screen;
        execute!(io::stdout(), terminal::EnterAlternateScreen, cursor::Hide)?;
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // What fails here cannot be told anywhere.
        let _ = execute!(io::stdout(), cursor::Show, terminal::LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}
