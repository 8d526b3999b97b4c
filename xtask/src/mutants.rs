//! `cargo xtask mutants`: changes the code that decides in small ways, one at a time, and sees whether
//! a test fails. What survives is a missing test, or is listed in .cargo/mutants.toml with the reason
//! why it changes nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use crate::Failure;
use crate::cargo::{root, status};
use crate::tool;

/// Where the copy's results are kept, for each area apart.
const RESULTS: &str = "target/mutants";
/// A test run that takes longer than this hangs: the mutant is caught, and counted apart.
const TEST_SECONDS_MAX: u32 = 300;

/// What is changed, and for how long
#[derive(Args)]
pub(crate) struct Asked {
    /// Which code is changed; all of it, one after the other, unless named
    #[arg(value_enum, value_name = "AREA")]
    areas: Vec<Area>,
    /// Stop after this long; the next run goes on where this one stopped
    #[arg(long, default_value_t = 60)]
    minutes: u32,
}

/// Code that decides.
#[derive(Clone, Copy, ValueEnum)]
enum Area {
    /// One slot's atomic steps
    Entry,
    /// Flights, claims, completions, verdicts
    Engine,
    /// The memory store
    Memory,
    /// The file store
    File,
    /// A quorum's proposer and acceptors
    Quorum,
    /// The tower layer
    Layer,
}

impl Area {
    const fn name(self) -> &'static str {
        match self {
            Self::Entry => "entry",
            Self::Engine => "engine",
            Self::Memory => "memory",
            Self::File => "file",
            Self::Quorum => "quorum",
            Self::Layer => "layer",
        }
    }

    /// The files that are changed.
    const fn files(self) -> &'static [&'static str] {
        match self {
            Self::Entry => &["crates/onlyonce-core/src/entry{.rs,/**}"],
            Self::Engine => &["crates/onlyonce-core/src/engine/**"],
            Self::Memory => &["crates/onlyonce-core/src/memory{.rs,/**}"],
            Self::File => &["crates/onlyonce-file/src/**"],
            Self::Quorum => &["crates/onlyonce-quorum/src/**"],
            Self::Layer => &["crates/onlyonce-tower/src/**"],
        }
    }

    /// The packages whose tests must notice: the area's own, and the models and simulators of it.
    const fn judges(self) -> &'static [&'static str] {
        match self {
            Self::Entry => &["onlyonce-core", "onlyonce-model"],
            Self::Engine => &["onlyonce-core", "onlyonce-testkit"],
            Self::Memory => &["onlyonce-core"],
            Self::File => &["onlyonce-file"],
            Self::Quorum => &["onlyonce-quorum", "onlyonce-model"],
            Self::Layer => &["onlyonce-tower"],
        }
    }
}

pub(crate) fn run(asked: &Asked) -> Result<ExitCode, Failure> {
    let areas = match &asked.areas[..] {
        [] => Area::value_variants(),
        areas => areas,
    };
    let mut is_clean = true;
    for area in areas {
        is_clean &= change(*area, asked.minutes)?;
    }
    Ok(crate::verdict(is_clean))
}

/// Changes one area; returns whether nothing survived.
fn change(area: Area, minutes: u32) -> Result<bool, Failure> {
    let results = root().join(RESULTS).join(area.name());
    fs::create_dir_all(&results)
        .map_err(|error| Failure::new(format!("cannot make {}: {error}", results.display())))?;
    println!("=== {} ===", area.name());
    let mut command = tool::mutants(minutes)?;
    command.arg("--output").arg(&results);
    for file in area.files() {
        command.args(["--file", file]);
    }
    for package in area.judges() {
        command.args(["--test-package", package]);
    }
    let seconds = TEST_SECONDS_MAX.to_string();
    command.args(["--iterate", "--no-shuffle", "--timeout", &seconds]);
    command.args(["--", "--all-features"]);
    let ended = status(&mut command)?;
    let found = Found::read(&results.join("mutants.out"));
    println!("{}: {found}", area.name());
    for survivor in &found.missed {
        println!("  survives: {survivor}");
    }
    if found.is_empty() && !ended.success() {
        return Err(Failure::new(
            "nothing was changed: see what cargo-mutants says above",
        ));
    }
    Ok(found.missed.is_empty())
}

/// What came of the changes that were tried.
struct Found {
    caught: usize,
    hung: usize,
    unbuilt: usize,
    missed: Vec<String>,
}

impl Found {
    fn read(results: &Path) -> Self {
        // Those of earlier runs are beside those of this one.
        let both = |name: &str| {
            let files = [name.to_owned(), format!("previously_{name}")];
            let lines = files.map(|file| lines(&results.join(file)));
            lines.concat()
        };
        Self {
            caught: both("caught.txt").len(),
            hung: both("timeout.txt").len(),
            unbuilt: both("unviable.txt").len(),
            missed: both("missed.txt"),
        }
    }

    fn is_empty(&self) -> bool {
        self.caught + self.hung + self.unbuilt + self.missed.len() == 0
    }
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            caught,
            hung,
            unbuilt,
            missed,
        } = self;
        let missed = missed.len();
        write!(
            f,
            "{caught} caught, {hung} caught by a test that hung, {unbuilt} do not build, {missed} survive"
        )
    }
}

/// A list that is not there is empty.
fn lines(file: &PathBuf) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}
