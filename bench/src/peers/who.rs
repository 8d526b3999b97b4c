//! Who is measured: the references, ourselves, and the peers.

use std::any::Any;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use onlyonce_testkit::servers::{Redis, Server as _};
use tokio::runtime::Runtime;

use super::install::Kit;
use super::{others, ours};
use crate::failure::Failure;
use crate::process::{Process, free_port};

/// One row of the comparison.
pub(super) struct Peer {
    pub(super) name: &'static str,
    /// Where its answers are, and so what survives.
    pub(super) keeps: &'static str,
    pub(super) version: Option<&'static str>,
    pub(super) kit: Option<&'static Kit>,
    /// Whether it knows keys at all.
    pub(super) keyed: bool,
    pub(super) start: fn(&Bed<'_>) -> Result<Started, Failure>,
}

/// A peer that serves.
pub(super) struct Started {
    pub(super) port: u16,
    /// Everything that has to run for it: itself, the handler, the store.
    pub(super) pids: Vec<u32>,
    pub(super) pay: &'static str,
    pub(super) slow: &'static str,
    /// Where a session begins, for those that need one.
    pub(super) session: Option<&'static str>,
    /// What ends with it.
    pub(super) alive: Vec<Box<dyn Any>>,
}

impl Started {
    /// With the paths that most have.
    pub(super) fn new(port: u16, pids: Vec<u32>, alive: impl Any) -> Self {
        Self {
            port,
            pids,
            pay: "/payments",
            slow: "/slow",
            session: None,
            alive: vec![Box::new(alive)],
        }
    }

    pub(super) fn and(mut self, pids: impl IntoIterator<Item = u32>, alive: impl Any) -> Self {
        self.pids.extend(pids);
        self.alive.push(Box::new(alive));
        self
    }
}

/// What all of them share.
pub(super) struct Bed<'a> {
    pub(super) runtime: &'a Runtime,
    folder: &'a Path,
    pub(super) kits: &'a Path,
    pub(super) redis: &'a Redis,
    /// The onlyonce program.
    pub(super) onlyonce: PathBuf,
    /// Where each run of a slow handler leaves a byte.
    pub(super) runs: PathBuf,
}

impl<'a> Bed<'a> {
    pub(super) fn new(
        runtime: &'a Runtime,
        folder: &'a Path,
        kits: &'a Path,
        redis: &'a Redis,
        onlyonce: PathBuf,
    ) -> Result<Self, Failure> {
        let runs = folder.join("runs");
        File::create(&runs).map_err(Failure::doing("make a file"))?;
        Ok(Self {
            runtime,
            folder,
            kits,
            redis,
            onlyonce,
            runs,
        })
    }

    /// How often slow handlers have run so far.
    pub(super) fn runs(&self) -> u64 {
        fs::metadata(&self.runs).map_or(0, |file| file.len())
    }

    /// A server that reads from its environment where to listen and what to use.
    pub(super) fn serve(&self, mut command: Command) -> Result<(Process, u16), Failure> {
        let port = free_port()?;
        command
            .env("PORT", port.to_string())
            .env("RUNS", &self.runs)
            .env("REDIS_URL", self.redis.url())
            .env("NODE_ENV", "production");
        let mut process = self.start(&command)?;
        process.wait_for(port)?;
        Ok((process, port))
    }

    pub(super) fn start(&self, command: &Command) -> Result<Process, Failure> {
        static LOGS: AtomicU64 = AtomicU64::new(0);
        let name = Path::new(command.get_program())
            .file_name()
            .unwrap_or_default();
        let log = LOGS.fetch_add(1, Ordering::Relaxed);
        let log = format!("{}-{log}.log", name.to_string_lossy());
        Process::start_logged(command, &self.folder.join(log))
    }

    /// The process of Redis, for those that keep their answers there.
    pub(super) fn redis_pid(&self) -> Option<u32> {
        self.redis.pid()
    }
}

const DISK: &str = "disk, synced before the answer";
const MEMORY: &str = "memory of the process";
const REDIS: &str = "Redis, in its memory";
const NOWHERE: &str = "–";

const fn of_ours(
    name: &'static str,
    keeps: &'static str,
    start: fn(&Bed<'_>) -> Result<Started, Failure>,
) -> Peer {
    Peer {
        name,
        keeps,
        version: None,
        kit: None,
        keyed: true,
        start,
    }
}

const fn reference(name: &'static str, start: fn(&Bed<'_>) -> Result<Started, Failure>) -> Peer {
    Peer {
        keyed: false,
        ..of_ours(name, NOWHERE, start)
    }
}

const fn other(
    name: &'static str,
    version: &'static str,
    keeps: &'static str,
    kit: &'static Kit,
    start: fn(&Bed<'_>) -> Result<Started, Failure>,
) -> Peer {
    Peer {
        version: Some(version),
        kit: Some(kit),
        ..of_ours(name, keeps, start)
    }
}

pub(super) static PEERS: [Peer; 18] = [
    reference("bare handler", ours::handler),
    reference("nginx, pass-through", ours::nginx),
    reference("HAProxy, pass-through", ours::haproxy),
    of_ours("onlyonce layer, memory", MEMORY, ours::layer_memory),
    of_ours("onlyonce layer, Redis", REDIS, ours::layer_redis),
    of_ours("onlyonce layer, file", DISK, ours::layer_file),
    of_ours("onlyonce gateway, memory", MEMORY, ours::gateway_memory),
    of_ours("onlyonce gateway, Redis", REDIS, ours::gateway_redis),
    of_ours("onlyonce gateway, file", DISK, ours::gateway_file),
    other(
        "Restate",
        "server 1.7.12, SDK 1.17.2",
        DISK,
        &others::RESTATE,
        others::restate,
    ),
    other(
        "idempotent-proxy-server, memory",
        "1.2.2",
        MEMORY,
        &others::PROXY,
        others::proxy_memory,
    ),
    other(
        "idempotent-proxy-server, Redis",
        "1.2.2",
        REDIS,
        &others::PROXY,
        others::proxy_redis,
    ),
    other(
        "axum-idempotent",
        "0.6.0",
        MEMORY,
        &others::AXUM,
        others::axum,
    ),
    other(
        "actix-idempotent",
        "0.1.1",
        REDIS,
        &others::ACTIX,
        others::actix,
    ),
    other(
        "express-idempotency",
        "1.0.6",
        MEMORY,
        &others::EXPRESS,
        others::express,
    ),
    other(
        "asgi-idempotency-header",
        "0.2.0",
        REDIS,
        &others::ASGI,
        others::asgi,
    ),
    other("idemkit", "1.0.2", REDIS, &others::IDEMKIT, others::idemkit),
    other(
        "Powertools for AWS Lambda",
        "3.37.0",
        REDIS,
        &others::POWERTOOLS,
        others::powertools,
    ),
];
