//! `dsync`: runs commands under locks of a Redis or Valkey server with the dsync module, and shows who holds them.

mod args;
mod connect;
mod duration;
mod endpoint;
mod failure;
mod generate;
mod holds;
mod log;
mod ls;
mod revoke;
mod run;
mod servers;
mod text;
mod top;

use std::io;
use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};
use failure::{Failure, Result, Status};
use servers::Servers;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no errors. What the terminal does not take is lost.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() {
                Status::Usage as u8
            } else {
                0
            });
        }
    };
    match carry_out(cli) {
        Ok(status) => ExitCode::from(status),
        Err(failure) => {
            eprintln!("dsync: {failure}");
            ExitCode::from(failure.status as u8)
        }
    }
}

/// Carries out a command. Returns its exit status.
fn carry_out(cli: Cli) -> Result<u8> {
    // Fails only if one was chosen already, which is nowhere done.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let servers = || Servers::of(&cli.server);
    let mut out = io::stdout().lock();
    let done = match &cli.command {
        Command::Run(options) => return run::run(&servers()?, options),
        Command::Ls(options) => ls::run(&servers()?, options, &mut out),
        Command::Revoke(options) => revoke::run(&servers()?, options, &mut out),
        Command::Log(options) => log::run(&servers()?, options, &mut out),
        Command::Top(options) => top::run(&servers()?, options, &mut out),
        Command::Generate { folder } => generate::run(folder),
        Command::Completions { shell } => generate::completions(*shell, &mut out),
    };
    match done {
        // Whoever read the output has seen enough, as `dsync ls | head` has.
        Err(Failure {
            status: Status::ReaderGone,
            ..
        }) => Ok(0),
        other => other.map(|()| 0),
    }
}
