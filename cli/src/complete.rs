//! What TAB offers where a key, a fence or an owner is expected: those that live now.
//!
//! `dsync complete` is for the scripts that `generate` writes. They write the line up to the cursor to stdin, because the
//! command lines of processes are seen by others, and this one may have a password. The options for the server are taken
//! from the line; nothing in it is expanded or carried out. An answer takes a second at most, and where something is wrong
//! there is none: an error would be written into what the user types.

use std::io::{self, Read, Write};
use std::time::Duration;

use clap::{CommandFactory, FromArgMatches};
use clap_complete::Shell;

use crate::args::{Cli, Server};
use crate::failure::Result;
use crate::family::Family;
use crate::holds::{self, Hold};
use crate::race;
use crate::servers::Servers;
use crate::text::name;

const TIME: Duration = Duration::from_secs(1);

/// How many pages of DSYNC.HOLDS each server is asked for.
const PAGES: u32 = 3;

const MOST_NAMES: usize = 300;

/// Stands for the last word, to learn which argument that is. A number, because a fence is one.
const MARK: &str = "18446744073709551615";

/// Prints the names that fit, one on each line. In bash a line follows the command's on stdin: the piece of the last
/// word that readline replaces, which begins behind a colon, an equals sign or a quotation mark.
pub fn run(shell: Shell) -> Result<()> {
    let mut text = String::new();
    io::stdin().read_to_string(&mut text)?;
    let (line, piece) = match text.rsplit_once('\n') {
        Some(parts) if shell == Shell::Bash => parts,
        _ => (text.trim_end_matches('\n'), ""),
    };
    let line = Line::of(line);
    let Some(asked) = Asked::of(line.words.clone()) else {
        return Ok(());
    };
    let before = asked.before.clone();
    let names = race::within(TIME, move || asked.names())?.flatten();
    let mut names = names.unwrap_or_default();
    names.sort();
    names.dedup();
    let words = names
        .into_iter()
        .take(MOST_NAMES)
        .filter_map(|name| match shell {
            Shell::Bash => line.rest(&format!("{before}{name}"), piece),
            // The others quote by themselves, and know of options that end with an equals sign.
            _ => Some(name),
        });
    let mut out = io::stdout().lock();
    for word in words {
        writeln!(out, "{word}")?;
    }
    Ok(())
}

/// A command line up to the cursor.
struct Line<'a> {
    words: Vec<String>,
    /// The last word as it was typed.
    last: &'a str,
    /// The quotation mark that is open.
    quote: Option<char>,
}

impl Line<'_> {
    /// Splits a line as a shell does, without expanding anything.
    fn of(line: &str) -> Line<'_> {
        let (mut words, mut word, mut quote, mut start) = (Vec::new(), String::new(), None, 0);
        let mut chars = line.char_indices();
        while let Some((at, c)) = chars.next() {
            match (quote, c) {
                (None, ' ' | '\t' | '\n') => {
                    if start < at {
                        words.push(std::mem::take(&mut word));
                    }
                    start = at + 1;
                }
                (None, '\'' | '"') => quote = Some(c),
                (Some(open), c) if c == open => quote = None,
                (None | Some('"'), '\\') => word.extend(chars.next().map(|(_, c)| c)),
                _ => word.push(c),
            }
        }
        words.push(word);
        let last = &line[start..];
        Line { words, last, quote }
    }

    /// Returns what of a word replaces the piece that readline replaces, as the shell reads it. `None` if it cannot be
    /// written with the quotation mark that is open.
    fn rest(&self, word: &str, piece: &str) -> Option<String> {
        let kept = Line::of(self.last.strip_suffix(piece)?).words.pop()?;
        let rest = word.strip_prefix(kept.as_str())?;
        let is_plain = |c: char| c.is_alphanumeric() || "_-./:=@%+,".contains(c);
        let escape = |c| (!is_plain(c)).then_some('\\').into_iter().chain([c]);
        match self.quote {
            None => Some(rest.chars().flat_map(escape).collect()),
            Some('\'') if rest.contains('\'') => None,
            Some('"') if rest.contains(['"', '$', '`', '\\', '!']) => None,
            Some(_) => Some(rest.to_owned()),
        }
    }
}

enum Wanted {
    Keys(Option<Family>),
    FencesOf(String),
    Owners,
}

/// What the last word of a command line is to be.
struct Asked {
    wanted: Wanted,
    /// The option before the value, with its equals sign, if they are one word.
    before: String,
    value: String,
    server: Server,
}

impl Asked {
    /// Reads the words, of which the last one may be empty.
    fn of(mut words: Vec<String>) -> Option<Asked> {
        let last = words.pop()?;
        let (before, value) = match last.split_once('=') {
            Some((option, _)) if option.starts_with("--") => last.split_at(option.len() + 1),
            _ if last.starts_with('-') => return None,
            _ => ("", last.as_str()),
        };
        words.push(format!("{before}{MARK}"));
        let definition = Cli::command().ignore_errors(true);
        let all = definition.try_get_matches_from(words).ok()?;
        let (mut matches, mut command, mut family) = (&all, "", None);
        while let Some((name, inner)) = matches.subcommand() {
            (matches, command, family) = (inner, name, family.or(Family::named(name)));
        }
        let values = |id| matches.try_get_raw(id).ok().flatten();
        let is_last = |id| values(id).is_some_and(|mut values| values.any(|value| value == MARK));
        let mut families = Family::ALL.into_iter();
        let wanted = if let Some(family) = families.find(|family| is_last(family.name())) {
            Wanted::Keys(Some(family))
        } else if is_last("key") || is_last("pattern") {
            Wanted::Keys(family)
        } else if is_last("fence") {
            Wanted::FencesOf(values("key")?.next()?.to_str()?.to_owned())
        } else if is_last("owner") && command != "run" {
            Wanted::Owners
        } else {
            return None;
        };
        Some(Asked {
            wanted,
            before: before.to_owned(),
            value: value.to_owned(),
            server: Server::from_arg_matches(&all).ok()?,
        })
    }

    /// Asks the servers. `None`: they are not to be asked, or do not answer.
    fn names(mut self) -> Option<Vec<String>> {
        self.server.timeout = Some(self.server.timeout.unwrap_or(TIME).min(TIME));
        let servers = Servers::of(&self.server).ok()?;
        let mut names = Vec::new();
        for mut node in servers.primaries().ok()? {
            let holds = holds::first_pages(&mut node, None, PAGES).ok()?;
            names.extend(
                holds
                    .iter()
                    .filter_map(|hold| self.name(hold, servers.login.db())),
            );
        }
        Some(names)
    }

    /// Returns what a hold has of what is wanted, if that fits and can be typed as it is.
    fn name(&self, hold: &Hold, db: i64) -> Option<String> {
        let key = hold.place.as_ref().filter(|place| place.db == db);
        let key = key.map(|place| place.key.as_slice());
        let found = match &self.wanted {
            Wanted::Keys(family) if family.is_some_and(|family| family.name() != hold.family) => {
                None
            }
            Wanted::Keys(_) => key.map(<[u8]>::to_vec),
            Wanted::FencesOf(of) => {
                (key == Some(of.as_bytes())).then(|| hold.fence.to_string().into_bytes())
            }
            // One with a character of patterns would fit others, too.
            Wanted::Owners => {
                (hold.owner.clone()).filter(|owner| !owner.iter().any(|c| b"*?[\\".contains(c)))
            }
        };
        let found = found?;
        let text = name(&found);
        let can_be_typed = text.as_bytes() == found && !text.is_empty() && !text.starts_with('-');
        (can_be_typed && text.starts_with(&self.value)).then_some(text)
    }
}
