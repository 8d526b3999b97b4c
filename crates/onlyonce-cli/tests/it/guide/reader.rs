//! Someone who does what a guide says, in a folder and on ports of their own.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use onlyonce_testkit::servers::{Redis, RedisOptions, Server as _};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::support::program::RUN_MAX;

/// The ports that the guide writes.
const WRITTEN: [&str; 7] = ["3000", "3001", "8080", "8443", "8444", "9090", "9091"];
const WRITTEN_REDIS: &str = "redis://127.0.0.1:6379";

pub(super) struct Reader {
    folder: TempDir,
    redis: Redis,
    /// The port there is for each that is written.
    ports: BTreeMap<&'static str, String>,
    services: Vec<Child>,
    gateways: Vec<Child>,
    /// Those that were stopped on the way.
    stopped: usize,
    variables: Vec<(&'static str, String)>,
}

impl Reader {
    pub(super) fn new() -> Self {
        // All are held until all are known: so no two are the same.
        let held = WRITTEN.map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
        let ports = held
            .each_ref()
            .map(|port| port.local_addr().unwrap().port());
        let ports = ports.map(|port| port.to_string());
        Self {
            folder: tempfile::tempdir().unwrap(),
            redis: Redis::start(RedisOptions::default()).expect("the server starts"),
            ports: WRITTEN.into_iter().zip(ports).collect(),
            services: Vec::new(),
            gateways: Vec::new(),
            stopped: 0,
            variables: Vec::new(),
        }
    }

    /// Has a variable in every shell from now on.
    pub(super) fn knows(&mut self, name: &'static str, value: &str) {
        self.variables.push((name, value.to_owned()));
    }

    /// Saves a file.
    pub(super) fn has(&self, name: &str, text: &str) {
        std::fs::write(self.folder.path().join(name), self.here(text)).unwrap();
    }

    /// Starts a program, and waits until it says that it listens. A gateway takes the place of the
    /// one before, unless it says where else it is.
    pub(super) async fn starts(&mut self, command: &str) {
        let is_gateway = command.starts_with("onlyonce gateway");
        if is_gateway && !command.contains("--listen") {
            for gateway in std::mem::take(&mut self.gateways) {
                self.ends_well(gateway).await;
            }
        }
        let mut shell = self.shell(&format!("exec {} 2>&1", self.here(command.trim())));
        if is_gateway && !self.says_where(command) {
            shell.env("ONLYONCE_LISTEN", self.here("127.0.0.1:8080"));
            shell.env("ONLYONCE_ADMIN", self.here("127.0.0.1:9090"));
        }
        let mut child = shell.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let said = Arc::new(Mutex::new(String::new()));
        let heard = Arc::clone(&said);
        let listens = async move {
            while let Some(line) = lines.next_line().await.unwrap() {
                let listens = line.contains(" listens on ");
                heard.lock().unwrap().push_str(&(line + "\n"));
                if listens {
                    return lines;
                }
            }
            panic!("it ended: {}", heard.lock().unwrap());
        };
        let lines = timeout(RUN_MAX, listens).await;
        let mut lines = lines.unwrap_or_else(|_| panic!("{command}: {}", said.lock().unwrap()));
        // What it says from now on is read, so that it never waits for a reader.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let running = if is_gateway {
            &mut self.gateways
        } else {
            &mut self.services
        };
        running.push(child);
    }

    /// Whether a gateway listens where its file says; else it is where all are by default.
    fn says_where(&self, command: &str) -> bool {
        let mut words = command.split_whitespace();
        let file = words.find(|word| *word == "--config").and(words.next());
        file.is_some_and(|file| {
            let settings = std::fs::read_to_string(self.folder.path().join(file)).unwrap();
            settings.contains("listen = ")
        })
    }

    /// Runs a command to its end; gives what it printed.
    pub(super) async fn runs(&self, command: &str) -> String {
        let command = self.here(command);
        let child = self
            .shell(&format!("exec 2>&1\n{command}"))
            .spawn()
            .unwrap();
        let output = timeout(RUN_MAX, child.wait_with_output()).await;
        let output = output
            .unwrap_or_else(|_| panic!("{command} does not end"))
            .unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success(),
            "{command}: {} {printed}",
            output.status
        );
        printed
    }

    /// How many programs were started so far.
    pub(super) fn started(&self) -> usize {
        self.services.len() + self.gateways.len() + self.stopped
    }

    /// Everything is stopped; the gateways end well.
    pub(super) async fn ends(mut self) {
        for gateway in std::mem::take(&mut self.gateways) {
            self.ends_well(gateway).await;
        }
    }

    async fn ends_well(&mut self, mut gateway: Child) {
        if gateway.try_wait().unwrap().is_none() {
            let id = gateway.id().unwrap().to_string();
            // It may have been told before, and be gone by now.
            let _ = std::process::Command::new("kill").arg(id).status();
        }
        let ended = timeout(RUN_MAX, gateway.wait()).await;
        assert_eq!(ended.expect("it ends").unwrap().code(), Some(0));
        self.stopped += 1;
    }

    fn shell(&self, script: &str) -> Command {
        let programs = Path::new(env!("CARGO_BIN_EXE_onlyonce")).parent().unwrap();
        let path = std::env::var("PATH").unwrap();
        let first = self.gateways.first().and_then(Child::id);
        let mut shell = Command::new("sh");
        shell
            .args(["-c", script])
            .current_dir(self.folder.path())
            .env("PATH", format!("{}:{path}", programs.display()))
            .env(
                "GATEWAY",
                first.map(|id| id.to_string()).unwrap_or_default(),
            )
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        shell
    }

    /// A text as it is written, with what is there instead.
    pub(super) fn here(&self, text: &str) -> String {
        let redis = self.redis.url();
        let text = text.replace(WRITTEN_REDIS, &redis);
        let text = text.replace("0.0.0.0", "127.0.0.1");
        let mut here = String::new();
        let mut number = String::new();
        for it in text.chars().chain([' ']) {
            if it.is_ascii_digit() {
                number.push(it);
                continue;
            }
            here += self.ports.get(&*number).unwrap_or(&number);
            number.clear();
            here.push(it);
        }
        here.pop();
        here
    }
}
