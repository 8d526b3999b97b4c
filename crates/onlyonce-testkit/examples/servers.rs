//! The servers that tests share, for as long as stdin stays open: `cargo run -p onlyonce-testkit
//! --features servers --example servers`. Writes `NAME=ADDRESS` lines and then an empty one.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is a command"
)]

use std::io;
use std::process::ExitCode;

use clap::Parser;
use onlyonce_testkit::servers::{Shared, SharedSet, missing_packages};

/// Starts one server of each kind and writes their addresses; end of input stops them.
#[derive(Parser)]
struct Arguments {
    /// Only write the Debian packages that are not yet installed, one a line.
    #[arg(long)]
    missing: bool,
}

fn main() -> ExitCode {
    if Arguments::parse().missing {
        for package in missing_packages() {
            println!("{package}");
        }
        return ExitCode::SUCCESS;
    }

    let set = match SharedSet::start(|line| eprintln!("{line}")) {
        Ok(set) => set,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    for server in Shared::ALL {
        println!("{}={}", server.variable(), set.url(server));
    }
    println!();

    match io::copy(&mut io::stdin(), &mut io::sink()) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stdin cannot be read: {error}");
            ExitCode::FAILURE
        }
    }
}
