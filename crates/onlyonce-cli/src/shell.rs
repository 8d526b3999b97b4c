//! `onlyonce completions` and `onlyonce man`: what shells and `man` know of this command.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::Cli;
use crate::said::{failed, say};

/// For which shell.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  onlyonce completions bash > ~/.local/share/bash-completion/completions/onlyonce
  onlyonce completions zsh  > \"${fpath[1]}/_onlyonce\"
  onlyonce completions fish > ~/.config/fish/completions/onlyonce.fish")]
pub struct Completions {
    /// The shell
    shell: Shell,
}

/// Where to.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Example:
  onlyonce man /usr/local/share/man/man1 && man onlyonce-keys")]
pub struct Man {
    /// The folder; it is made if it is missing
    folder: PathBuf,
}

/// Prints what the shell reads.
pub fn completions(args: &Completions) -> ExitCode {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "onlyonce", &mut text);
    match std::io::Write::write_all(&mut std::io::stdout(), &text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

/// Writes a page for each subcommand.
pub fn man(args: &Man) -> ExitCode {
    match write_pages(&args.folder) {
        Ok(()) => {
            say(format_args!("the pages are in {}", args.folder.display()));
            ExitCode::SUCCESS
        }
        Err(error) => failed(&error),
    }
}

fn write_pages(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    clap_mangen::generate_to(Cli::command(), folder)
}
