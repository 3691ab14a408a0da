//! The man pages and shell completions, made of the command line's definition, so that they say what it says.

use std::fs;
use std::io::Write;
use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Cli;
use crate::failure::Result;

/// Writes `man/dsync.1`, a page for each subcommand, and `completions/` for the shells that packages install them for.
pub fn run(folder: &Path) -> Result<()> {
    let pages = folder.join("man");
    fs::create_dir_all(&pages)?;
    clap_mangen::generate_to(Cli::command(), &pages)?;
    let completions = folder.join("completions");
    fs::create_dir_all(&completions)?;
    for (shell, name) in [
        (Shell::Bash, "dsync.bash"),
        (Shell::Zsh, "_dsync"),
        (Shell::Fish, "dsync.fish"),
    ] {
        let mut file = fs::File::create(completions.join(name))?;
        clap_complete::generate(shell, &mut Cli::command(), "dsync", &mut file);
    }
    Ok(())
}

pub fn completions(shell: Shell, out: &mut impl Write) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "dsync", &mut script);
    out.write_all(&script)?;
    Ok(())
}
