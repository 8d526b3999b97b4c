//! A running gateway: started from its settings, reloaded, drained.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::Router;
use http::Uri;
use onlyonce_core::engine::FormerSecret;
use onlyonce_core::{Engine, SlotSecret, Store};
use onlyonce_observe::audit::AuditSettings;
use onlyonce_observe::traces::Traces;
use onlyonce_observe::{Observed, Setup};
use onlyonce_stores::OpenError;
use onlyonce_tower::{Allowance, BufferLimit};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::admin::{self, Admin, AdminPatience, Settings};
use crate::config::{self, Config, ConfigError, Count, Span};
use crate::identity;
use crate::observing;
use crate::scopes;
use crate::server::Server;
use crate::settling::Settling;
use crate::site::{self, Bounds, PerWorker, Sites};
use crate::tls::Acceptor;
use crate::traces;
use crate::upstream::Healths;
use crate::workers::Workers;

pub(crate) const LISTEN: &str = "127.0.0.1:8080";
pub(crate) const ADMIN: &str = "127.0.0.1:9090";
/// Names the secret that the store keeps, in place of a file.
const KEPT: &str = "store";
/// Shorter tokens can be guessed.
const ADMIN_TOKEN_BYTES_MIN: usize = 16;
pub(crate) const DRAIN: Duration = Duration::from_secs(30);
pub(crate) const RUNNING_MAX: NonZeroUsize = NonZeroUsize::new(1024).expect("1,024 is not zero");

/// Why a gateway did not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// The settings do not hold.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The engine cannot be opened on it, or its audit trail not be written.
    #[error(transparent)]
    Engine(#[from] onlyonce_observe::OpenError),
    /// The system gives no threads.
    #[error("cannot start the threads that serve connections: {0}")]
    Threads(io::Error),
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}; choose another one with `{setting}`")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The setting that chooses it.
        setting: &'static str,
        /// Why not.
        source: io::Error,
    },
}

/// A gateway that serves.
pub struct Gateway {
    address: SocketAddr,
    admin_address: SocketAddr,
    observed: Observed,
    /// Whether the engine is this gateway's own, to be ended with it.
    owns_engine: bool,
    traces: Option<Traces>,
    workers: Workers,
    sites: Sites,
    healths: Healths,
    settling: Settling,
    bounds: Bounds,
    /// Whether some request meets a contract that holds.
    enforces: Arc<AtomicBool>,
    tls: Option<Acceptor>,
    /// What it was started with.
    config: Config,
    /// What operators see of the settings.
    shown: Settings,
    drain: Duration,
    stop: watch::Sender<bool>,
    server: JoinHandle<()>,
    admin: JoinHandle<()>,
}

impl Gateway {
    /// Opens the store, listens and serves.
    pub async fn start(config: &Config) -> Result<Self, StartError> {
        Self::start_around(config, |store| store).await
    }

    /// The same on a store of one's own around the one that the settings name.
    pub async fn start_around(
        config: &Config,
        wrap: impl FnOnce(Arc<dyn Store>) -> Arc<dyn Store>,
    ) -> Result<Self, StartError> {
        config::holds(config)?;
        let token = admin_token(config)?;
        let observed = open_engine(config, wrap).await?;
        Self::serve(config, observed, true, token).await
    }

    /// Serves on an engine that others use too: what the settings say of the store, its breaker, the
    /// secrets, the audit trail and this instance is left to whoever opened it, as is its end.
    pub async fn start_on(config: &Config, observed: Observed) -> Result<Self, StartError> {
        config::holds(config)?;
        let token = admin_token(config)?;
        Self::serve(config, observed, false, token).await
    }

    async fn serve(
        config: &Config,
        observed: Observed,
        owns_engine: bool,
        token: Option<String>,
    ) -> Result<Self, StartError> {
        let engine = &observed.engine;
        warn_of_large_answers(config, engine);
        scopes::note(scopes::of(config), engine).await;
        let traces = traces::from_env()?;
        let bounds = Bounds {
            allowance: Allowance::new(identity::allowance(&config.limits)),
            buffers: BufferLimit::new(config.buffered_bytes()),
            observing: observing::counted(observed.observers.metrics()),
        };
        let workers = Workers::start().map_err(StartError::Threads)?;
        let healths = Healths::new(observed.observers.metrics());
        let (count, spans) = (workers.count(), traces.as_ref());
        let sites = PerWorker::new(count, config, engine, &bounds, spans, &healths)?;
        let chores = site::chores(config, engine, &healths)?;
        let sites = Arc::new(ArcSwap::from_pointee(sites));
        let tls = config.tls.as_ref().map(Acceptor::new).transpose()?;
        let address = config.listen.unwrap_or_else(|| fixed(LISTEN));
        let listener = listen(address, "listen").await?;
        let address = listener.local_addr().unwrap_or(address);
        let wanted = config.admin.unwrap_or_else(|| fixed(ADMIN));
        let operators = listen(wanted, "admin").await?;
        let admin_address = operators.local_addr().unwrap_or(wanted);
        let enforces = Arc::new(AtomicBool::new(!config.enforces_nothing()));
        let shown = Settings::new(config, Some(address), admin_address, owns_engine);
        let token = token.as_deref();
        let admin = Admin::new(
            observed.clone(),
            config,
            admin_address,
            token,
            shown.clone(),
        )
        .in_front_of(healths.clone())
        .observing(&bounds.observing, &enforces);
        let patience = AdminPatience::new(config);
        let admin = tokio::spawn(admin::serve(operators, admin.router(), patience));
        let (stop, stopped) = watch::channel(false);
        let server = Server::new(
            listener,
            tls.clone(),
            config,
            Arc::clone(&sites),
            workers.runtimes(),
        );
        Ok(Self {
            address,
            admin_address,
            observed,
            owns_engine,
            traces,
            workers,
            sites,
            healths,
            settling: Settling::start(chores),
            bounds,
            enforces,
            tls,
            config: config.clone(),
            shown,
            drain: config.drain.map_or(DRAIN, Span::get),
            stop,
            server: tokio::spawn(server.run(stopped)),
            admin,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where operators reach it.
    pub fn admin_address(&self) -> SocketAddr {
        self.admin_address
    }

    /// Takes new settings, all or none. What only a start can change is refused by name.
    pub fn reload(&self, config: &Config) -> Result<(), ConfigError> {
        config::holds(config)?;
        if let Some(setting) = only_at_start(&self.config, config) {
            let why = "cannot be changed while the gateway runs: restart it";
            return Err(ConfigError::new(setting, why));
        }
        let rule = identity::allowance(&config.limits);
        let bounds = Bounds {
            allowance: self.bounds.allowance.under(rule),
            ..self.bounds.clone()
        };
        let sites = PerWorker::new(
            self.workers.count(),
            config,
            &self.observed.engine,
            &bounds,
            self.traces.as_ref(),
            &self.healths,
        )?;
        let chores = site::chores(config, &self.observed.engine, &self.healths)?;
        warn_of_large_answers(config, &self.observed.engine);
        self.note_scopes(config);
        if let (Some(acceptor), Some(tls)) = (&self.tls, &config.tls) {
            acceptor.reload(tls)?;
        }
        self.sites.store(Arc::new(sites));
        self.settling.replace(chores);
        self.bounds.observing.only(&config.observed());
        let enforces = !config.enforces_nothing();
        self.enforces.store(enforces, Ordering::Relaxed);
        self.healths.keep_only(&upstreams(config));
        self.shown.replace(config);
        Ok(())
    }

    /// In a task of its own: a store that is slow holds up no new settings.
    fn note_scopes(&self, config: &Config) {
        let (scopes, engine) = (scopes::of(config), self.observed.engine.clone());
        tokio::spawn(async move { scopes::note(scopes, &engine).await });
    }

    /// Stops taking connections, lets requests end, and says how many did not in time.
    pub async fn drain(self) -> usize {
        self.stop.send_replace(true);
        let mut server = self.server;
        if tokio::time::timeout(self.drain, &mut server).await.is_err() {
            server.abort();
        }
        drop(self.settling);
        let left = if self.owns_engine {
            let left = self.observed.engine.shutdown(self.drain).await;
            self.observed.observers.close().await;
            left
        } else {
            0
        };
        if let Some(traces) = &self.traces {
            traces.close().await;
        }
        self.admin.abort();
        self.workers.close().await;
        left
    }
}

/// Every upstream that `config` names.
fn upstreams(config: &Config) -> Vec<Uri> {
    let named = config.route.iter().map(|route| &route.upstream);
    let named = named.chain([&config.upstream]).flatten();
    let uris = named.filter_map(|address| config::is_upstream(address).ok());
    uris.collect()
}

/// The operators' side alone, on the store that `config` names: the engine, and the routes to mount
/// somewhere. Nothing listens. Without a token it answers only who asks for a loopback name, for the
/// address in `admin` or for one of `admin_hosts`.
pub async fn operators(config: &Config) -> Result<(Engine, Router), StartError> {
    let token = admin_token(config)?;
    let observed = open_engine(config, |store| store).await?;
    let engine = observed.engine.clone();
    let admin = config.admin.unwrap_or_else(|| fixed(ADMIN));
    let shown = Settings::new(config, None, admin, true);
    let admin = Admin::new(observed, config, admin, token.as_deref(), shown);
    Ok((engine, admin.router()))
}

/// The first setting that differs and that only a start can change.
fn only_at_start(old: &Config, new: &Config) -> Option<&'static str> {
    macro_rules! differing {
        ($($field:ident)+) => {
            [$((stringify!($field), old.$field != new.$field)),+]
        };
    }
    let fields = differing!(listen admin admin_token_file admin_hosts ready_upstreams store namespace instance secret_file former_secret_file drain breaker log audit);
    let of_clients = [
        ("tls", old.tls.is_some() != new.tls.is_some()),
        (
            "limits.connections",
            old.limits.connections != new.limits.connections,
        ),
        (
            "limits.header_bytes",
            old.limits.header_bytes != new.limits.header_bytes,
        ),
        ("limits.streams", old.limits.streams != new.limits.streams),
        ("limits.running", old.limits.running != new.limits.running),
        (
            "limits.buffered_bytes",
            old.buffered_bytes() != new.buffered_bytes(),
        ),
        (
            "timeouts.headers",
            old.timeouts.headers != new.timeouts.headers,
        ),
        ("timeouts.write", old.timeouts.write != new.timeouts.write),
    ];
    let mut all = fields.into_iter().chain(of_clients);
    all.find_map(|(name, differs)| differs.then_some(name))
}

async fn open_engine(
    config: &Config,
    wrap: impl FnOnce(Arc<dyn Store>) -> Arc<dyn Store>,
) -> Result<Observed, StartError> {
    let url = config.store_url();
    let store = wrap(onlyonce_stores::open(url).await?);
    let breaker = config.breaker;
    let setup = Setup::new(onlyonce_stores::backend(url), store)
        .url(url)
        .guard(move |guarded| breaker.guard(guarded))
        .audit(config.audit.as_ref().map(audit_settings));
    let running_max = config.limits.running.map(Count::as_usize);
    let running_max = running_max.and_then(NonZeroUsize::new);
    let running_max = running_max.unwrap_or(RUNNING_MAX);
    let (secret, former) = (own_secret(config)?, former_secret(config)?);
    let observed = setup.open(|builder| {
        let mut builder = builder.running_max(running_max);
        if let Some(namespace) = &config.namespace {
            builder = builder.namespace(namespace);
        }
        if let Some(instance) = &config.instance {
            builder = builder.instance(instance);
        }
        if let Some(secret) = secret {
            builder = builder.secret(secret);
        }
        if let Some(former) = former {
            builder = builder.rotate_from(former);
        }
        builder
    });
    Ok(observed.await?)
}

pub(crate) fn audit_settings(config: &config::Audit) -> AuditSettings {
    let mut settings = AuditSettings::at(&config.path);
    if let Some(keep) = config.keep {
        settings.keep = keep.get();
    }
    if let Some(file_bytes_max) = config.file_bytes_max {
        settings.file_bytes_max = file_bytes_max.get();
    }
    settings
}

/// Tells of a `response_bytes_max` that the store cannot keep.
fn warn_of_large_answers(config: &Config, engine: &Engine) {
    let Some(store_bytes_max) = engine.store().response_bytes_max() else {
        return;
    };
    let response_bytes_max = config.response_bytes_max();
    if response_bytes_max > store_bytes_max {
        tracing::warn!(
            target: "onlyonce",
            response_bytes_max,
            store_bytes_max,
            "the store cannot keep answers of response_bytes_max: a retry of one that is larger \
             than store_bytes_max is told that it ran, without the answer; lower \
             response_bytes_max, or raise the store's bound (docs/stores.md)"
        );
    }
}

/// The slot secret, where a file has it.
pub(crate) fn own_secret(config: &Config) -> Result<Option<SlotSecret>, ConfigError> {
    config.secret_file.as_deref().map(secret).transpose()
}

/// The slot secret before that one.
pub(crate) fn former_secret(config: &Config) -> Result<Option<FormerSecret>, ConfigError> {
    Ok(match &config.former_secret_file {
        Some(path) if path.as_os_str() == KEPT => Some(FormerSecret::Kept),
        Some(path) => Some(FormerSecret::Given(secret(path)?)),
        None => None,
    })
}

fn secret(path: &Path) -> Result<SlotSecret, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(path, &error))?;
    SlotSecret::from_hex(text.trim()).ok_or_else(|| {
        let why = "is not 64 hex digits: make one with `openssl rand -hex 32`";
        ConfigError::new(path.display(), why)
    })
}

fn unreadable(path: &Path, error: &io::Error) -> ConfigError {
    let why = format!("cannot be read: {error}; make one with `openssl rand -hex 32 > FILE`");
    ConfigError::new(path.display(), why)
}

pub(crate) fn admin_token(config: &Config) -> Result<Option<String>, ConfigError> {
    let Some(path) = &config.admin_token_file else {
        return Ok(None);
    };
    let token = std::fs::read_to_string(path).map_err(|error| unreadable(path, &error))?;
    if token.trim().len() < ADMIN_TOKEN_BYTES_MIN {
        let why = "is too short for a token: make one with `openssl rand -hex 32`";
        return Err(ConfigError::new(path.display(), why));
    }
    Ok(Some(token))
}

async fn listen(address: SocketAddr, setting: &'static str) -> Result<TcpListener, StartError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| StartError::Listen {
            address,
            setting,
            source,
        })
}

pub(crate) fn fixed(address: &str) -> SocketAddr {
    address.parse().expect("a default is an address")
}
