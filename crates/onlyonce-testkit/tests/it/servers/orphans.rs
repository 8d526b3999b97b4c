//! Servers do not outlive a process that was killed.

use std::env;
use std::fs;
use std::io::{Read, stdin};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use onlyonce_testkit::servers::{
    MariaDb, MariaDbOptions, Postgres, PostgresOptions, Redis, RedisOptions, Server,
};

use super::{children, eventually, runs};

const TEST: &str = "servers::orphans::a_killed_parent_leaves_nothing_behind";
/// Set for the copy of this test that is to be killed: where it says what it started.
const REPORT: &str = "ONLYONCE_TEST_ORPHANS";

#[test]
fn a_killed_parent_leaves_nothing_behind() {
    if let Some(report) = env::var_os(REPORT) {
        return start_and_wait(Path::new(&report));
    }
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report");
    let mut parent = Command::new(env::current_exe().unwrap())
        .args(["--exact", TEST, "--nocapture"])
        .env(REPORT, &report)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let text = eventually(|| fs::read_to_string(&report).ok(), Option::is_some).unwrap();
    let started: Vec<(u32, PathBuf)> = text.lines().map(parse).collect();
    let pids = started.iter().map(|(pid, _)| *pid);
    let pids: Vec<u32> = pids
        .flat_map(|pid| [vec![pid], children(pid)].concat())
        .collect();
    assert!(
        started
            .iter()
            .all(|(pid, folder)| runs(*pid) && folder.is_dir())
    );

    parent.kill().unwrap();
    parent.wait().unwrap();

    eventually(
        || pids.iter().filter(|pid| runs(**pid)).count(),
        |count| *count == 0,
    );
    for (_, folder) in started {
        eventually(|| folder.exists(), |exists| !exists);
    }
}

/// What the parent does: one server that runs, one that is paused, one that was started again.
fn start_and_wait(report: &Path) {
    let redis = Redis::start(RedisOptions::default()).unwrap();
    redis.restart().unwrap();
    let mariadb = MariaDb::start(MariaDbOptions::default()).unwrap();
    mariadb.pause().unwrap();
    let postgres = Postgres::start(PostgresOptions::default()).unwrap();
    let servers: [&dyn Server; 3] = [&redis, &mariadb, &postgres];
    let line = |server: &&dyn Server| {
        let folder = server.folder().display();
        format!("{} {folder}\n", server.pid().unwrap())
    };
    let text: String = servers.iter().map(line).collect();
    let draft = report.with_extension("draft");
    fs::write(&draft, text).unwrap();
    fs::rename(draft, report).unwrap();

    // Ends also if nobody kills us.
    stdin().read_to_end(&mut Vec::new()).unwrap();
}

fn parse(line: &str) -> (u32, PathBuf) {
    let (pid, folder) = line.split_once(' ').unwrap();
    (pid.parse().unwrap(), folder.into())
}
