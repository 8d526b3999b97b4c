//! Everything side by side in one run of bounded time: results as JSON, as Markdown tables and as
//! plots. A part that fails is reported, and the others go on.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use crate::budget::Budget;
use crate::failure::Failure;
use crate::proxy::Program;
use crate::report::{Note, Report};
use crate::{gateway, layer, markdown, peers, plot, readme, say, stores, system};

const LAYER: Duration = Duration::from_secs(30);
const STORES: Duration = Duration::from_secs(200);
const GATEWAY: Duration = Duration::from_secs(100);
/// What is kept back for ending everything and writing the results.
const END: Duration = Duration::from_secs(30);
/// The results that the README shows.
const PUBLISHED: &str = "docs/benchmarks";

#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    program: Program,
    #[command(flatten)]
    folder: peers::Folder,
    /// How long everything may take, installing peers included
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..))]
    minutes: u64,
    /// How often two sides take turns
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Where the results are written; the README's table too, unless this is elsewhere
    #[arg(long, default_value = PUBLISHED)]
    output: PathBuf,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let time = Duration::from_secs(60 * options.minutes);
    let budget = Budget::new(time.saturating_sub(END));
    let (rounds, program) = (options.rounds, || options.program.clone());
    let mut report = Report {
        machine: Some(system::machine()),
        ..Report::default()
    };
    let mut add = |name: &'static str, part: &dyn Fn() -> Result<Report, Failure>| {
        if !budget.has_time() {
            report
                .notes
                .push(Note::new(name, "left out", "no time was left"));
            return;
        }
        match part() {
            Ok(part) => report.add(part),
            Err(why) => {
                say(&format!("{name}: {why}"));
                let note = Note::new(name, "not measured", why.to_string());
                report.notes.push(note);
            }
        }
    };
    add("layer", &|| layer::run(budget.part(LAYER)));
    let parts = stores::Options::short(rounds);
    add("stores", &|| stores::run(&parts, budget.part(STORES)));
    let parts = gateway::Options::short(program(), rounds, 2);
    add("gateway", &|| gateway::run(&parts, budget.part(GATEWAY)));
    let parts = peers::Options::short(program(), options.folder.clone(), rounds.min(2));
    add("peers", &|| peers::run(&parts, budget));
    let report = report.with_noise();
    println!("{report}");
    write(&report, &options.output)
}

fn write(report: &Report, folder: &Path) -> Result<(), Failure> {
    fs::create_dir_all(folder).map_err(Failure::doing(format!("make {}", folder.display())))?;
    let results = folder.join("results.json");
    report.write(&results)?;
    if folder == Path::new(PUBLISHED) {
        readme::write(Path::new("README.md"), &results)?;
    }
    let path = folder.join("results.md");
    fs::write(&path, text(report)).map_err(Failure::doing(format!("write {}", path.display())))?;
    let title = "requests a second, 64 connections";
    peer_bars(report, folder, "peers-rate.svg", title, "rate")?;
    let title = "p99 in microseconds, 64 connections";
    peer_bars(report, folder, "peers-p99.svg", title, "p99")?;
    let title = "CPU microseconds a request, handler and store included";
    peer_bars(report, folder, "peers-cpu.svg", title, "CPU a request")?;
    let rates = report.rows.iter().filter(|row| row.what == "rate");
    let ratios = rates.filter(|row| row.base.is_some());
    let ratios = ratios.filter(|row| !markdown::peer_names(report).contains(&row.subject));
    let ratios: Vec<_> = ratios
        .map(|row| {
            let name = match row.subject {
                "gateway" => row.case.clone(),
                subject => format!("{subject}, {}", row.case),
            };
            (name, vec![Some(row.figure)])
        })
        .collect();
    let title = "rate, as a ratio to the reference";
    plot::bars(&folder.join("ratios.svg"), title, &["ratio"], &ratios)?;
    say(&format!("the results are in {}", folder.display()));
    Ok(())
}

fn peer_bars(
    report: &Report,
    folder: &Path,
    file: &str,
    title: &str,
    what: &str,
) -> Result<(), Failure> {
    let figure = |name, case| markdown::of(report, name, case, what).map(|row| row.ours);
    let names = markdown::peer_names(report).into_iter();
    let groups: Vec<_> = names
        .map(|name| {
            let new = figure(name, "new keys").or_else(|| figure(name, "passed through"));
            (name.to_owned(), vec![new, figure(name, "replays")])
        })
        .filter(|(_, figures)| figures.iter().any(Option::is_some))
        .collect();
    plot::bars(&folder.join(file), title, &["new keys", "replays"], &groups)
}

fn text(report: &Report) -> String {
    let machine = report.machine.as_deref().unwrap_or_default();
    let (peers, rest) = (markdown::peers(report), markdown::rest(report));
    format!(
        "# Measured\n\n\
         Written by `cargo xtask bench`: one run on {machine}. What each line means is in\n\
         [docs/benchmarks.md](../benchmarks.md).\n\n\
         ## Peers in front of the same handler\n\n\
         Requests of 300 bytes, answers of 200, 64 connections. \"Of bare\" is the rate as a ratio to\n\
         the bare handler, measured right before. CPU and memory are those of everything that has to\n\
         run: the peer, the handler and Redis where it is used. The duplicates are sent at the same\n\
         moment to a handler that takes 100 ms; served is who has a good answer within 15 s.\n\n\
         ![](peers-rate.svg)\n![](peers-p99.svg)\n![](peers-cpu.svg)\n\n\
         {peers}\n\
         ## Layer, stores and gateway\n\n![](ratios.svg)\n\n{rest}"
    )
}
