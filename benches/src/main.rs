//! The benchmark: what dsync costs beside what the same server can do without it.
//!
//! README.md of this folder says what each line measures and how. A missed target is a row that says `below`;
//! a run fails only where a figure would be worth nothing: a wrong reply, a server that died, CPU time that
//! cannot be read.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program that prints a table"
)]

mod bench;
mod client;
mod colours;
mod columns;
mod counting;
mod invalid;
mod lines;
mod load;
mod machine;
mod options;
mod peers;
mod pings;
mod plots;
mod report;
mod row;
mod server;
mod statistics;
mod valgrind;
mod words;

use std::fs;
use std::process::ExitCode;
use std::time::Instant;

use bench::Bench;
use invalid::{Context, Invalid, Result};
use lines::Line;
use machine::Machine;
use options::{Mode, Options};
use peers::{Findings, Peer};
use report::Report;
use server::Setting;

fn main() -> ExitCode {
    let arguments = std::env::args().skip(1);
    match Options::read(arguments, |name| std::env::var(name).ok()).and_then(run) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("dsync-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the lines, and writes and prints the report. Returns whether the run is valid.
fn run(options: Options) -> Result<bool> {
    let (lines, peers) = chosen(&options)?;
    let bench = Bench::new(options, Machine::look()?);
    let mut report = Report {
        machine: bench.machine.clone(),
        mode: bench.options.mode,
        server: machine::version(&bench.options.server)?,
        native_server: machine::version(&bench.options.native_server)?,
        module: module(&bench)?,
        rows: Vec::new(),
        peers: Findings::default(),
        notes: Vec::new(),
        invalid: Vec::new(),
    };
    print_head(&report);
    let begin = Instant::now();
    for line in lines {
        print_progress(begin, line.name, line.what);
        let result = (line.run)(&bench, &mut report.rows);
        report.note_invalid(line.name, result);
    }
    for peer in peers {
        print_progress(begin, peer.name, peer.waiting);
        let result = peers::run(&bench, peer, &mut report.peers);
        report.note_invalid(peer.name, result);
    }
    report.notes = bench.notes();
    if !report.rows.is_empty() {
        println!("\n{}", report.table());
    }
    print!("{}", peers::text(&report.peers));
    finish(&bench, &report, begin)?;
    Ok(report.invalid.is_empty())
}

/// The lines and peers of the mode, or those that ONLY names.
fn chosen(options: &Options) -> Result<(Vec<&'static Line>, Vec<&'static Peer>)> {
    let lines = lines::ALL.iter().map(|line| line.name);
    let names: Vec<_> = lines
        .chain(peers::ALL.iter().map(|peer| peer.name))
        .collect();
    if let Some(name) = options
        .only
        .iter()
        .find(|name| !names.contains(&name.as_str()))
    {
        return Err(Invalid::new(format!(
            "there is no line or peer '{name}', but: {}",
            names.join(" ")
        )));
    }
    let only = &options.only;
    let lines = lines::ALL.iter().filter(|line| match only.is_empty() {
        true => line.is_part_of(options.mode),
        false => only.iter().any(|name| name == line.name),
    });
    Ok((lines.collect(), peers::chosen(options)))
}

fn print_progress(begin: Instant, name: &str, what: &str) {
    eprintln!("{:5.0} s  {name}: {what}", begin.elapsed().as_secs_f64());
}

/// The module as a server names it, and at the same time the proof that it can be loaded.
fn module(bench: &Bench) -> Result<String> {
    let mut side = bench
        .ours(Setting::Plain)
        .map_err(|error| error.during("no server"))?;
    let text = side.control.text("INFO modules")?;
    text.lines()
        .find_map(|line| {
            let fields = line.strip_prefix("module:")?;
            fields.starts_with("name=dsync,").then_some(fields)
        })
        .and_then(|fields| fields.split(",api").next())
        .map(str::to_owned)
        .context("the server did not load the module")
}

fn print_head(report: &Report) {
    let machine = &report.machine;
    println!(
        "{}, {} cores, {} GB, Linux {}, load {}, {} open files",
        machine.cpu,
        machine.cores,
        machine.memory_gb,
        machine.kernel,
        machine.load,
        machine.open_files
    );
    println!(
        "{}; DELIFEQ on {}; {}; commit {}; {} run",
        report.server,
        report.native_server,
        report.module,
        machine.commit,
        report.mode.name()
    );
    if report.mode == Mode::Quick {
        println!(
            "A quick run shows that every line runs and every reply is right. Its figures say nothing."
        );
    }
    if machine.is_busy() {
        println!("WARNING: the machine is busy");
    }
}

/// Writes the files, and prints what is to be said below the table.
fn finish(bench: &Bench, report: &Report, begin: Instant) -> Result<()> {
    let out = &bench.options.out;
    fs::create_dir_all(out).context(out.display())?;
    let results = out.join(match report.mode {
        Mode::Instructions => "instructions.json",
        _ => "results.json",
    });
    let json = serde_json::to_string_pretty(report).context("JSON")?;
    fs::write(&results, json + "\n").context(results.display())?;
    let mut plots = plots::draw(&report.rows, out)?;
    if !bench.is_quick() {
        plots.extend(peers::draw(&report.peers, out)?);
    }
    for note in &report.notes {
        println!("note: {note}");
    }
    for warning in report.warnings() {
        println!("WARNING: {warning}");
    }
    for reason in &report.invalid {
        println!("INVALID: {reason}");
    }
    let plots: Vec<_> = plots
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    let written = [vec![results.display().to_string()], plots].concat();
    println!("written: {}", written.join(" "));
    println!("took {:.0} s", begin.elapsed().as_secs_f64());
    if report.invalid.is_empty() {
        bench.tidy();
    } else {
        println!(
            "The run is INVALID. The servers' logs are in {}",
            bench.logs().display()
        );
    }
    Ok(())
}
