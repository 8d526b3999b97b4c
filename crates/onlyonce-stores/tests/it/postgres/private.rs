//! A PostgreSQL server of a test's own, which it may kill.

use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Nobody: the server refuses to be started by root.
const NOBODY: &str = "65534";

pub(super) struct Private {
    folder: tempfile::TempDir,
    port: u16,
    process: Option<Child>,
}

impl Private {
    pub(super) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        if is_root() {
            let owner = format!("{NOBODY}:{NOBODY}");
            run(Command::new("chown").arg(owner).arg(folder.path()));
        }
        let data = folder.path().join("data");
        run(unprivileged("initdb").arg("-D").arg(&data).args([
            "-A",
            "trust",
            "-U",
            "postgres",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
        ]));
        let mut settings = std::fs::OpenOptions::new()
            .append(true)
            .open(data.join("postgresql.conf"))
            .unwrap();
        writeln!(settings, "port = {port}\nlisten_addresses = '127.0.0.1'").unwrap();
        writeln!(settings, "unix_socket_directories = ''\nautovacuum = off").unwrap();
        let mut server = Self {
            folder,
            port,
            process: None,
        };
        server.restart();
        server
    }

    pub(super) fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Like pulling the plug.
    pub(super) fn kill(&mut self) {
        let mut process = self.process.take().expect("it runs");
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// Starts it again, once all that is left of the last one is gone.
    pub(super) fn restart(&mut self) {
        let data = self.folder.path().join("data");
        for _ in 0..200 {
            let mut process = unprivileged("postgres")
                .arg("-D")
                .arg(&data)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            while process.try_wait().unwrap().is_none() {
                if std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                    self.process = Some(process);
                    return;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("the server does not start");
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        if self.process.is_some() {
            self.kill();
        }
    }
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().unwrap();
    id.stdout == b"0\n"
}

/// A program of the server, not as root.
fn unprivileged(program: &str) -> Command {
    let program = installed(program);
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    let user = [format!("--reuid={NOBODY}"), format!("--regid={NOBODY}")];
    command.args(user).arg("--clear-groups").arg(program);
    command.current_dir("/");
    command
}

/// Debian keeps the programs of each version apart; elsewhere they are in the path.
fn installed(program: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql");
    let mut found: Vec<PathBuf> = versions
        .map(|versions| {
            versions
                .flatten()
                .map(|it| it.path().join("bin").join(program))
        })
        .map(|paths| paths.filter(|path| path.exists()).collect())
        .unwrap_or_default();
    found.sort();
    found.pop().unwrap_or_else(|| Path::new(program).to_owned())
}

fn run(command: &mut Command) {
    let ran = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    assert!(ran.expect("the program is installed").success());
}
