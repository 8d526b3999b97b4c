//! The peers in front of the same trivial handler, beside us and beside nothing at all. Each is
//! installed from its registry into a folder of its own; one that cannot be is reported, and the others
//! go on.

mod duplicates;
mod install;
mod measure;
mod others;
mod ours;
mod quickest;
mod who;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use onlyonce_testkit::servers::{Redis, RedisOptions};

use self::install::Kit;
use self::who::{Bed, PEERS, Peer};
use crate::budget::Budget;
use crate::failure::Failure;
use crate::proxy::Program;
use crate::report::{Note, Report};
use crate::{runtime, say};

/// How long all installing and building may take.
const INSTALL: Duration = Duration::from_secs(1200);

#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    program: Program,
    #[command(flatten)]
    folder: Folder,
    /// Only the peers whose names contain one of these
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// How often each peer and the bare handler take turns
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// How long each turn is
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
}

/// Where the peers are installed.
#[derive(Args, Clone)]
pub(crate) struct Folder {
    /// Where peers are installed and kept for the next time; without it in a temporary folder
    #[arg(long, value_name = "DIR")]
    peers_folder: Option<PathBuf>,
}

impl Options {
    /// A short run, for when there is more to measure.
    pub(crate) fn short(program: Program, folder: Folder, rounds: u32) -> Self {
        Self {
            program,
            folder,
            only: Vec::new(),
            rounds,
            seconds: 1,
        }
    }

    fn wants(&self, peer: &Peer) -> bool {
        let name = peer.name.to_lowercase();
        let part = |part: &String| name.contains(&part.to_lowercase());
        self.only.is_empty() || self.only.iter().any(part)
    }
}

pub(crate) fn run(options: &Options, budget: Budget) -> Result<Report, Failure> {
    let temporary = tempfile::tempdir().map_err(Failure::doing("make a folder"))?;
    let kits = match &options.folder.peers_folder {
        Some(folder) => std::path::absolute(folder).map_err(Failure::doing("find a folder"))?,
        None => temporary.path().join("kits"),
    };
    let peers: Vec<_> = PEERS.iter().filter(|it| options.wants(it)).collect();
    // Building takes minutes, measuring seconds.
    let installed = install(&peers, &kits, budget.most(INSTALL));

    let runtime = runtime()?;
    let redis = Redis::start(RedisOptions::default())?;
    let program = options.program.path()?;
    let bed = Bed::new(&runtime, temporary.path(), &kits, &redis, program)?;
    let mut report = Report::default();
    for (peer, installed) in peers.into_iter().zip(installed) {
        let about = |what, text: &str| Note::new(peer.name, what, text);
        report.notes.push(about("keeps", peer.keeps));
        report
            .notes
            .extend(peer.version.map(|it| about("version", it)));
        if let Err(why) = installed {
            report.notes.push(about("not installed", &why.to_string()));
            continue;
        }
        if !budget.has_time() {
            report.notes.push(about("left out", "no time was left"));
            continue;
        }
        say(&format!("peers: {}", peer.name));
        match measure::run(peer, &bed, options) {
            Ok(part) => report.add(part),
            Err(why) => {
                say(&format!("peers: {}: {why}", peer.name));
                report.notes.push(about("not measured", &why.to_string()));
            }
        }
    }
    report.rows.extend(quickest::rows(&report));
    Ok(report)
}

/// What has to be compiled comes last: nothing shall wait for it in vain.
fn install(peers: &[&Peer], kits: &Path, budget: Budget) -> Vec<Result<(), Failure>> {
    let mut order: Vec<_> = (0..peers.len()).collect();
    order.sort_by_key(|at| peers[*at].kit.is_some_and(Kit::compiles));
    let mut installed: Vec<_> = peers.iter().map(|_| Ok(())).collect();
    for at in order {
        let Some(kit) = peers[at].kit else { continue };
        installed[at] = install::install(kit, kits, budget);
        if let Err(why) = &installed[at] {
            say(&format!(
                "peers: {} is not installed: {why}",
                peers[at].name
            ));
        }
    }
    installed
}
