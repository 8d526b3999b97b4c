//! How throughput and p99 grow: with concurrency, with live keys, with the size of bodies and with the
//! number of gateways on one store. Each curve is written as JSON and as plots, and its table into
//! `docs/scaling.md`, which explains it.

mod bodies;
mod concurrency;
mod document;
mod gateways;
mod live;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, ValueEnum};
use serde::Serialize;
use tempfile::TempDir;

use crate::failure::Failure;
use crate::plot;
use crate::process::{Process, free_port};
use crate::proxy::Program;
use crate::rounds::Sample;
use crate::{say, serve, system};

#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    program: Program,
    /// Only these curves
    #[arg(long, value_delimiter = ',')]
    only: Vec<Curve>,
    /// Also 10 million live keys: many minutes, and 16 GB of disk
    #[arg(long)]
    long: bool,
    /// How long each point is measured
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Where the file store is; everything made there is removed
    #[arg(long, default_value = "target/bench-scaling")]
    folder: PathBuf,
    /// Where the results are written
    #[arg(long, default_value = "docs/benchmarks")]
    output: PathBuf,
    /// Whose tables are written
    #[arg(long, default_value = "docs/scaling.md")]
    document: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Curve {
    /// Against concurrent connections
    Concurrency,
    /// Against live keys in the file store
    Live,
    /// Against the size of request and response
    Bodies,
    /// Against the number of gateways on one Redis and one PostgreSQL
    Gateways,
}

/// One point of a curve.
#[derive(Serialize)]
struct Point {
    series: &'static str,
    x: u64,
    /// Operations a second.
    rate: f64,
    /// In microseconds.
    p99: f64,
    /// What else is known there, by name.
    #[serde(flatten)]
    more: BTreeMap<&'static str, f64>,
}

#[derive(Serialize)]
struct Measured {
    machine: String,
    /// How many processes were busy there before it began.
    load: f64,
    /// How long each point was measured.
    seconds: u64,
    points: Vec<Point>,
}

impl Point {
    fn new(series: &'static str, x: u64, sample: Sample) -> Self {
        Self {
            series,
            x,
            rate: sample.rate,
            p99: sample.p99.unwrap_or(0.0),
            more: BTreeMap::new(),
        }
    }

    fn with(mut self, name: &'static str, figure: f64) -> Self {
        self.more.insert(name, figure);
        self
    }
}

impl Curve {
    fn name(self) -> &'static str {
        match self {
            Self::Concurrency => "concurrency",
            Self::Live => "live",
            Self::Bodies => "bodies",
            Self::Gateways => "gateways",
        }
    }

    /// What its x is.
    fn x(self) -> &'static str {
        match self {
            Self::Concurrency => "connections",
            Self::Live => "live keys",
            Self::Bodies => "bytes of request and response",
            Self::Gateways => "gateways",
        }
    }

    fn points(self, options: &Options) -> Result<Vec<Point>, Failure> {
        match self {
            Self::Concurrency => concurrency::run(options),
            Self::Live => live::run(options),
            Self::Bodies => bodies::run(options),
            Self::Gateways => gateways::run(options),
        }
    }
}

/// A curve that fails is reported after the others.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let mut failed = Vec::new();
    for curve in Curve::value_variants() {
        if !options.only.is_empty() && !options.only.contains(curve) {
            continue;
        }
        let load = system::load();
        let done = curve.points(options).and_then(|points| {
            let measured = Measured {
                machine: system::machine(),
                load,
                seconds: options.seconds,
                points,
            };
            write(*curve, &measured, options)
        });
        if let Err(why) = done {
            say(&format!("scaling, {}: {why}", curve.name()));
            failed.push(format!("{}: {why}", curve.name()));
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    Err(Failure::new(failed.join("; ")))
}

fn write(curve: Curve, measured: &Measured, options: &Options) -> Result<(), Failure> {
    let folder = &options.output;
    let cannot = || Failure::doing(format!("write to {}", folder.display()));
    fs::create_dir_all(folder).map_err(cannot())?;
    let name = |end: &str| folder.join(format!("scaling-{}{end}", curve.name()));
    let json = serde_json::to_string_pretty(measured).map_err(Failure::doing("write JSON"))?;
    fs::write(name(".json"), json + "\n").map_err(cannot())?;
    let x = curve.x();
    let rates = lines(&measured.points, |point| point.rate);
    let title = format!("throughput against {x}");
    plot::lines(&name("-rate.svg"), &title, (x, "a second"), &rates)?;
    let p99s = lines(&measured.points, |point| point.p99);
    let title = format!("p99 against {x}");
    plot::lines(&name("-p99.svg"), &title, (x, "microseconds"), &p99s)?;
    document::write(&options.document, curve, measured)
}

fn lines(points: &[Point], figure: impl Fn(&Point) -> f64) -> Vec<plot::Line> {
    let mut lines: Vec<plot::Line> = Vec::new();
    for point in points {
        let at = (point.x as f64, figure(point));
        match lines.iter_mut().find(|(name, _)| name == point.series) {
            Some((_, line)) => line.push(at),
            None => lines.push((point.series.to_owned(), vec![at])),
        }
    }
    lines
}

/// The trivial handler in a process of its own.
struct Handler {
    process: Process,
    port: u16,
    _folder: TempDir,
}

impl Handler {
    fn start() -> Result<Self, Failure> {
        let folder = tempfile::tempdir().map_err(Failure::doing("make a folder"))?;
        let port = free_port()?;
        let command: Command = serve::command(port, None, &folder.path().join("runs"))?;
        let mut process = Process::start_logged(&command, &folder.path().join("log"))?;
        process.wait_for(port)?;
        Ok(Self {
            process,
            port,
            _folder: folder,
        })
    }
}

/// A store of the gateway in a folder of its own.
fn file_store(folder: &Path) -> String {
    format!("file:{}/data", folder.display())
}
