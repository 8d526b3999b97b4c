//! A process that is killed and started again in its place.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use crate::failure::Failure;

/// How long it may take to listen. Far more than it does.
const START_MAX: Duration = Duration::from_secs(60);
/// How long it may take to end once it is killed.
const END_MAX: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(10);
const LOG_BYTES_SHOWN: usize = 1500;
const SIGKILL: i32 = 9;

/// A process that listens. It ends with this value, and with us, whatever ends us.
pub(crate) struct Process {
    program: PathBuf,
    args: Vec<String>,
    pub(crate) listen: SocketAddr,
    log: PathBuf,
    /// The one core it runs on: a gateway then serves all connections by one thread.
    core: usize,
    child: Option<Child>,
}

/// A thread: what it is called, and which of those called so it is, counted from the oldest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Thread {
    pub(crate) name: String,
    pub(crate) number: usize,
}

impl Process {
    pub(crate) async fn start(
        program: PathBuf,
        args: Vec<String>,
        port: u16,
        log: PathBuf,
    ) -> Result<Self, Failure> {
        let mut process = Self {
            program,
            args,
            listen: SocketAddr::from(([127, 0, 0, 1], port)),
            log,
            core: core()?,
            child: None,
        };
        process.start_again().await?;
        Ok(process)
    }

    /// Starts it in its place, and waits until it listens.
    pub(crate) async fn start_again(&mut self) -> Result<(), Failure> {
        let log = File::options().create(true).append(true).open(&self.log);
        let log = log.map_err(Failure::doing("open the log of a process"))?;
        let mut command = Command::new("taskset");
        command
            .args(["-c", &self.core.to_string()])
            .args(["setpriv", "--pdeathsig", "KILL", "--"])
            .arg(&self.program)
            .args(&self.args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true);
        let child = command.spawn().map_err(Failure::doing("start a process"))?;
        self.child = Some(child);
        let listens = async {
            loop {
                if let Some(how) = self.child.as_mut().and_then(|it| it.try_wait().ok()?) {
                    return Err(self.failure(&format!("it ended: {how}")));
                }
                if TcpStream::connect(self.listen).await.is_ok() {
                    return Ok(());
                }
                sleep(LOOK_EVERY).await;
            }
        };
        match timeout(START_MAX, listens).await {
            Ok(started) => started,
            Err(_) => Err(self.failure("it does not listen")),
        }
    }

    pub(crate) fn id(&self) -> Result<u32, Failure> {
        let id = self.child.as_ref().and_then(Child::id);
        id.ok_or_else(|| self.failure("it does not run"))
    }

    /// Waits until it was killed; any other end is a failure.
    pub(crate) async fn wait_until_killed(&mut self) -> Result<(), Failure> {
        let Some(mut child) = self.child.take() else {
            return Err(self.failure("it does not run"));
        };
        let ended = timeout(END_MAX, child.wait()).await;
        match ended.map(|ended| ended.map(|how| how.signal())) {
            Ok(Ok(Some(SIGKILL))) => Ok(()),
            Ok(Ok(_)) => Err(self.failure("it ended by itself")),
            Ok(Err(error)) => Err(Failure::doing("wait for a process")(error)),
            Err(_) => Err(self.failure("it was killed, and does not end")),
        }
    }

    /// The ids of its threads.
    pub(crate) fn threads(&self) -> Result<Vec<(Thread, u32)>, Failure> {
        let folder = format!("/proc/{}/task", self.id()?);
        let cannot = || Failure::doing(format!("read {folder}"));
        let mut ids: Vec<u32> = fs::read_dir(&folder)
            .map_err(cannot())?
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .collect();
        ids.sort_unstable();
        let mut threads: Vec<(Thread, u32)> = Vec::new();
        for id in ids {
            let Ok(name) = fs::read_to_string(format!("{folder}/{id}/comm")) else {
                continue;
            };
            let name = name.trim().to_owned();
            let number = threads.iter().filter(|(it, _)| it.name == name).count();
            threads.push((Thread { name, number }, id));
        }
        Ok(threads)
    }

    pub(crate) fn failure(&self, what: &str) -> Failure {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let from = log.len().saturating_sub(LOG_BYTES_SHOWN);
        let from = log.ceil_char_boundary(from);
        let name = self.log.file_stem().unwrap_or_default().display();
        Failure::new(format!("{name}: {what}; its log ends:\n{}", &log[from..]))
    }
}

/// One of the cores that we may use, the next one each time.
fn core() -> Result<usize, Failure> {
    static STARTED: AtomicUsize = AtomicUsize::new(0);
    let status = fs::read_to_string("/proc/self/status");
    let status = status.map_err(Failure::doing("read which cores there are"))?;
    let mut lines = status.lines();
    let list = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let cores = cores(list.unwrap_or_default());
    let started = STARTED.fetch_add(1, Ordering::Relaxed);
    let core = cores.get(started % cores.len().max(1));
    core.copied()
        .ok_or_else(|| Failure::new("there is no core to run on"))
}

/// The numbers in a list like `0-3,8`.
fn cores(list: &str) -> Vec<usize> {
    let ranges = list.trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse().ok()?..=last.parse().ok()?)
    });
    ranges.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::cores;

    #[test]
    fn cores_are_read_from_the_kernels_list() {
        assert_eq!(cores("\t0-2,8\n"), [0, 1, 2, 8]);
        assert_eq!(cores("\t5\n"), [5]);
    }
}
