//! The man pages and shell completions, made of the command line's definition, so that they say what it says.
//!
//! `dsync generate` is for those who make packages.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::args::Cli;
use crate::failure::Result;

/// Asks for the names that live. The library's script for bash, unlike those for zsh and fish, does not know either that
/// behind `--` stands a command.
const LIVE_IN_BASH: &str = r#"
_dsync_or_command() {
    local at
    for ((at = 1; at < COMP_CWORD; at++)); do
        if [[ ${COMP_WORDS[at]} == -- ]]; then
            if declare -F _comp_command_offset >/dev/null; then
                _comp_command_offset $((at + 1))
            elif declare -F _command_offset >/dev/null; then
                _command_offset $((at + 1))
            elif ((at + 1 == COMP_CWORD)); then
                mapfile -t COMPREPLY < <(compgen -c -- "${COMP_WORDS[COMP_CWORD]}" | sort -u)
            fi
            return
        fi
    done
    mapfile -t COMPREPLY < <(printf '%s\n%s' "${COMP_LINE:0:COMP_POINT}" "$2" | "$1" complete bash 2>/dev/null)
    ((${#COMPREPLY[@]})) || _dsync "$@"
}
"#;

const LIVE_IN_ZSH: &str = r#"
_dsync_live() {
    local -a live
    live=(${(f)"$(print -r -- "$dsync_words $IPREFIX$PREFIX" | $dsync_words[1] complete zsh 2>/dev/null)"})
    if (( $#live )); then compadd -- $live; else _default; fi
}

_dsync() {
    # The words as they were before the subcommand took its own.
    local -a dsync_words
    dsync_words=("${(@)words[1,CURRENT-1]}")
"#;

const LIVE_IN_FISH: &str = r#"
function __dsync_live
    set -l program (commandline -opc)[1]
    commandline -cp | $program complete fish 2>/dev/null
end

complete -c dsync -n "not __fish_dsync_needs_command" -a "(__dsync_live)"
complete -c dsync -n "__fish_dsync_using_subcommand run" -l lock -l semaphore -l once -l group -ra "(__dsync_live)"
complete -c dsync -n "__fish_dsync_using_subcommand ls holds revoke" -l owner -ra "(__dsync_live)"
"#;

/// Writes `man/dsync.1`, a page for each subcommand and theirs, and `completions/` for the shells that packages install
/// them for.
pub fn run(folder: &Path) -> Result<()> {
    let pages = folder.join("man");
    fs::create_dir_all(&pages)?;
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    pages_of(&command, &[], &pages)?;
    let scripts = folder.join("completions");
    fs::create_dir_all(&scripts)?;
    for (shell, name) in [
        (Shell::Bash, "dsync.bash"),
        (Shell::Zsh, "_dsync"),
        (Shell::Fish, "dsync.fish"),
    ] {
        completions(shell, &mut File::create(scripts.join(name))?)?;
    }
    Ok(())
}

pub fn completions(shell: Shell, out: &mut impl Write) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "dsync", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    let script = match shell {
        Shell::Bash => {
            script.replace("complete -F _dsync ", "complete -F _dsync_or_command ") + LIVE_IN_BASH
        }
        Shell::Zsh => {
            let script = script.replace(":_default'", ":_dsync_live'");
            script.replacen("\n_dsync() {\n", LIVE_IN_ZSH, 1)
        }
        Shell::Fish => script + LIVE_IN_FISH,
        _ => script,
    };
    out.write_all(script.as_bytes())?;
    Ok(())
}

/// Writes the pages of a command and its subcommands. `related` are the pages that its own refers to.
fn pages_of(command: &Command, related: &[String], folder: &Path) -> io::Result<()> {
    page(command, related, folder)?;
    let name = page_name(command);
    let subcommands: Vec<&Command> = command.get_subcommands().collect();
    for subcommand in &subcommands {
        let others = subcommands.iter().map(|other| page_name(other));
        let others = others.filter(|other| *other != page_name(subcommand));
        let related: Vec<String> = std::iter::once(name.clone()).chain(others).collect();
        pages_of(subcommand, &related, folder)?;
    }
    Ok(())
}

fn page_name(command: &Command) -> String {
    Man::new(command.clone())
        .get_filename()
        .trim_end_matches(".1")
        .to_owned()
}

/// Writes a page. The library would put all that stands behind the options into one section, EXTRA.
fn page(command: &Command, related: &[String], folder: &Path) -> io::Result<()> {
    let man = Man::new(command.clone()).source(concat!("dsync ", env!("CARGO_PKG_VERSION")));
    let mut out = Vec::new();
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    man.render_synopsis_section(&mut out)?;
    man.render_description_section(&mut out)?;
    man.render_options_section(&mut out)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut out)?;
    }
    if let Some(text) = command.get_after_help() {
        sections(&text.to_string()).to_writer(&mut out)?;
    }
    if !related.is_empty() {
        let related: Vec<String> = related.iter().map(|name| format!("{name}(1)")).collect();
        let mut roff = Roff::new();
        roff.control("SH", ["SEE ALSO"])
            .text([roman(related.join(", "))]);
        roff.to_writer(&mut out)?;
    }
    if command.get_version().is_some() {
        man.render_version_section(&mut out)?;
    }
    fs::write(folder.join(man.get_filename()), out)
}

/// Makes sections of what stands behind the options: a paragraph whose first line is like `Exit status:` is one, all
/// others are notes. Indented lines stay lines.
fn sections(text: &str) -> Roff {
    let mut roff = Roff::new();
    let mut is_in_notes = false;
    for paragraph in text.split("\n\n") {
        let mut lines = paragraph.lines().peekable();
        let title = lines.next_if(|line| line.ends_with(':') && !line.starts_with(' '));
        match title {
            Some(title) => {
                let title = title.trim_end_matches(':').to_uppercase();
                roff.control("SH", [title.as_str()]);
            }
            None if is_in_notes => drop(roff.control("PP", [])),
            None => drop(roff.control("SH", ["NOTES"])),
        }
        is_in_notes = title.is_none();
        while let Some(line) = lines.next() {
            let is_indented = |line: &str| line.starts_with(' ');
            if !is_indented(line) {
                roff.text([roman(line)]);
                continue;
            }
            roff.control("nf", []);
            roff.text([roman(line)]);
            while let Some(line) = lines.next_if(|line| is_indented(line)) {
                roff.text([roman(line)]);
            }
            roff.control("fi", []);
        }
    }
    roff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_become_sections_and_indented_lines_stay_lines() {
        let page =
            sections("Some words.\n\nExit status:\n   64  wrong\n   69  away\nAnd words.\n\nMore.\n\nAnd more.")
                .render();
        let page = page.split_once(".SH NOTES").unwrap().1;
        assert_eq!(
            page,
            "\nSome words.\n.SH \"EXIT STATUS\"\n.nf\n   64  wrong\n   69  away\n.fi\nAnd words.\n.SH NOTES\nMore.\n.PP\nAnd more.\n"
        );
    }
}
