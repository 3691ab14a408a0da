//! `dsync`: runs commands under locks of a Redis or Valkey server with the dsync module, and shows who holds them.

mod acl;
mod address;
mod args;
mod complete;
mod connect;
mod duration;
mod explain;
mod failure;
mod family;
mod generate;
mod glob;
mod group;
mod holds;
mod info;
mod library;
mod log;
mod ls;
mod once;
mod paint;
mod password;
mod pause;
mod profile;
mod race;
mod revoke;
mod run;
mod servers;
mod text;
mod top;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Subcommand};

use address::{looks_like_url, scheme_of};
use args::{Cli, Command, Hidden};
use failure::{Failure, Result, Status};
use servers::Servers;
use text::say;

/// What the command line asks for.
enum Task {
    Hidden(Hidden),
    Command(Box<Cli>),
}

fn main() -> ExitCode {
    // Fails only if one was chosen already, which is nowhere done.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let done = match parse() {
        Ok(Task::Hidden(Hidden::Generate { folder })) => generate::run(&folder).map(|()| 0),
        Ok(Task::Hidden(Hidden::Complete { shell })) => complete::run(shell).map(|()| 0),
        Ok(Task::Command(cli)) => carry_out(&cli),
        // Help and version are no errors. What the terminal does not take is lost.
        Err(error) if !error.use_stderr() => {
            let _ = error.print();
            match has_more() {
                true => Err(failure::usage(
                    "what stands behind the option for help or the version was not carried out",
                )),
                false => Ok(0),
            }
        }
        Err(error) if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            return ExitCode::from(Status::Usage as u8);
        }
        Err(error) => Err(usage(&error)),
    };
    match done {
        Ok(status) => ExitCode::from(status),
        Err(failure) => {
            say(&failure.message);
            ExitCode::from(failure.status as u8)
        }
    }
}

/// Whether words stand behind the option that printed help or the version: a job, perhaps, which has not run.
fn has_more() -> bool {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    let prints = |word: &OsString| {
        let word = word.to_string_lossy();
        let is_cluster = word.starts_with('-') && !word.starts_with("--");
        word == "--help" || word == "--version" || is_cluster && word.ends_with('V')
    };
    let position = words.iter().position(prints);
    position.is_some_and(|nth| nth + 1 < words.len())
}

fn parse() -> std::result::Result<Task, clap::Error> {
    let mut command = Hidden::augment_subcommands(Cli::command());
    let matches = command.try_get_matches_from_mut(std::env::args_os());
    let matches = matches.map_err(with_tips)?;
    match Hidden::from_arg_matches(&matches) {
        Ok(hidden) => Ok(Task::Hidden(hidden)),
        Err(_) => Cli::from_arg_matches(&matches)
            .map(|cli| Task::Command(Box::new(cli)))
            .map_err(|error| error.format(&mut command)),
    }
}

/// Says where a URL goes, what -h is, and how to give an option a value that begins with a dash. Such a word is an option
/// of its own for clap, and it would be a value if `allow_hyphen_values` were set: then `--lock $KEY --try`, without a
/// key, would hold the lock `--try`.
fn with_tips(mut error: clap::Error) -> clap::Error {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.as_str(),
        _ => "",
    };
    let invalid = text(ContextKind::InvalidArg);
    let mut tips = match error.get(ContextKind::Suggested) {
        Some(ContextValue::StyledStrs(tips)) => tips.clone(),
        _ => Vec::new(),
    };
    let dashed = "a value that begins with a dash follows '=': ";
    let tip = match error.kind() {
        ErrorKind::InvalidSubcommand if looks_like_url(text(ContextKind::InvalidSubcommand)) => {
            "an address of the server follows --url: '--url ADDRESS'".to_owned()
        }
        ErrorKind::InvalidValue if !text(ContextKind::InvalidValue).is_empty() => return error,
        ErrorKind::InvalidValue if invalid.starts_with("--host") => {
            "-h is the host of the server; help is '--help'".to_owned()
        }
        ErrorKind::InvalidValue => {
            format!("{dashed}'{}'", invalid.replace(" <", "=-").replace('>', ""))
        }
        // A word that is nearly an option is a mistyped one.
        ErrorKind::UnknownArgument
            if !tips.is_empty() && error.get(ContextKind::SuggestedArg).is_none() =>
        {
            format!("{dashed}'--OPTION={invalid}'")
        }
        _ => return error,
    };
    tips.push(tip.into());
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    error
}

/// Returns the error of a wrong command line, which begins as all errors do. A URL in it is not repeated: it can have a
/// password.
fn usage(error: &clap::Error) -> Failure {
    let mut text = error.to_string();
    for (_, value) in error.context() {
        if let ContextValue::String(word) = value
            && looks_like_url(word)
        {
            text = text.replace(word, &scheme_of(word));
        }
    }
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    Failure::new(Status::Usage, text.trim_end())
}

/// Carries out a command. Returns its exit status.
fn carry_out(cli: &Cli) -> Result<u8> {
    let is_quiet = matches!(&cli.command, Command::Run(options) if options.quiet);
    let servers = || -> Result<Servers> {
        let servers = Servers::of(&cli.server)?;
        if let Some(warning) = password::warning(&cli.server).filter(|_| !is_quiet) {
            say(warning);
        }
        Ok(servers)
    };
    let mut out = io::stdout().lock();
    let done = match &cli.command {
        Command::Run(options) => return run::run(servers()?, options),
        Command::Info(options) => info::run(&servers()?, options, &mut out),
        Command::Pause(options) => pause::pause(&servers()?, options, &mut out),
        Command::Resume(options) => pause::resume(&servers()?, options, &mut out),
        Command::Once(asked) => once::run(&servers()?, asked, &mut out),
        Command::Group(asked) => group::run(&servers()?, asked, &mut out),
        Command::Ls(options) => ls::run(&servers()?, options, &mut out),
        Command::Revoke(options) => revoke::run(&servers()?, options, &mut out),
        Command::Log(options) => log::run(&servers()?, options, &mut out),
        Command::Top(options) => top::run(&servers()?, options, &mut out),
        Command::Completions { shell } => generate::completions(*shell, &mut out),
    };
    // A result without an end of the line is not written before this.
    match done.and_then(|()| Ok(out.flush()?)) {
        // Whoever read the output has seen enough, as `dsync ls | head` has.
        Err(Failure {
            status: Status::ReaderGone,
            ..
        }) => Ok(0),
        other => other.map(|()| 0),
    }
}
