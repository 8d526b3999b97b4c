//! A running gateway: started from its settings, reloaded, drained.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use axum::Router;
use http::Uri;
use onlyonce_core::{Engine, Store};
use onlyonce_observe::traces::Traces;
use onlyonce_observe::{Observed, Setup};
use onlyonce_stores::OpenError;
use onlyonce_tower::{Allowance, BufferLimit};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::admin::{self, Admin, Shown};
use crate::config::ConfigError;
use crate::observing;
use crate::scopes;
use crate::server::Server;
use crate::settings::Settings;
use crate::settling::Settling;
use crate::site::{self, Bounds, PerWorker, Sites};
use crate::tls::Acceptor;
use crate::traces;
use crate::upstream::Healths;
use crate::workers::Workers;

/// Why a gateway did not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// A variable that says where traces go cannot be used.
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
    settings: Settings,
    /// What operators see of the settings.
    shown: Shown,
    stop: watch::Sender<bool>,
    server: JoinHandle<()>,
    admin: JoinHandle<()>,
}

impl Gateway {
    /// Opens the store, listens and serves.
    pub async fn start(settings: &Settings) -> Result<Self, StartError> {
        Self::start_around(settings, |store| store).await
    }

    /// The same on a store of one's own around the one that the settings name.
    pub async fn start_around(
        settings: &Settings,
        wrap: impl FnOnce(Arc<dyn Store>) -> Arc<dyn Store>,
    ) -> Result<Self, StartError> {
        let observed = open_engine(settings, wrap).await?;
        Self::serve(settings, observed, true).await
    }

    /// Serves on an engine that others use too: what the settings say of the store, its breaker, the
    /// secrets, the audit trail and this instance is left to whoever opened it, as is its end.
    pub async fn start_on(settings: &Settings, observed: Observed) -> Result<Self, StartError> {
        Self::serve(settings, observed, false).await
    }

    async fn serve(
        settings: &Settings,
        observed: Observed,
        owns_engine: bool,
    ) -> Result<Self, StartError> {
        let engine = &observed.engine;
        warn_of_large_answers(settings, engine);
        scopes::note(scopes::of(settings), engine).await;
        let traces = traces::from_env()?;
        let bounds = Bounds {
            allowance: Allowance::new(settings.limits.caller),
            buffers: BufferLimit::new(settings.limits.buffered_bytes),
            observing: observing::counted(observed.observers.metrics()),
        };
        let workers = Workers::start().map_err(StartError::Threads)?;
        let healths = Healths::new(observed.observers.metrics());
        let (count, spans) = (workers.count(), traces.as_ref());
        let sites = PerWorker::new(count, settings, engine, &bounds, spans, &healths);
        let chores = site::chores(settings, engine, &healths);
        let sites = Arc::new(ArcSwap::from_pointee(sites));
        let tls = settings.credentials.tls.clone().map(Acceptor::new);
        let listener = listen(settings.listen, "listen").await?;
        let address = listener.local_addr().unwrap_or(settings.listen);
        let wanted = settings.operators.address;
        let operators = listen(wanted, "admin").await?;
        let admin_address = operators.local_addr().unwrap_or(wanted);
        let enforces = Arc::new(AtomicBool::new(settings.enforces()));
        let shown = Shown::new(settings, Some(address), admin_address, owns_engine);
        let admin = Admin::new(observed.clone(), settings, admin_address, shown.clone())
            .in_front_of(healths.clone())
            .observing(&bounds.observing, &enforces);
        let admin = admin::serve(operators, admin.router(), settings.timeouts);
        let admin = tokio::spawn(admin);
        let (stop, stopped) = watch::channel(false);
        let server = Server::new(
            listener,
            tls.clone(),
            settings,
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
            settings: settings.clone(),
            shown,
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
    pub fn reload(&self, settings: &Settings) -> Result<(), ConfigError> {
        if let Some(setting) = self.settings.only_at_start(settings) {
            let why = "cannot be changed while the gateway runs: restart it";
            return Err(ConfigError::new(setting, why));
        }
        let engine = &self.observed.engine;
        let bounds = Bounds {
            allowance: self.bounds.allowance.under(settings.limits.caller),
            ..self.bounds.clone()
        };
        let (count, spans) = (self.workers.count(), self.traces.as_ref());
        let sites = PerWorker::new(count, settings, engine, &bounds, spans, &self.healths);
        let chores = site::chores(settings, engine, &self.healths);
        warn_of_large_answers(settings, engine);
        self.note_scopes(settings);
        if let (Some(acceptor), Some(tls)) = (&self.tls, &settings.credentials.tls) {
            acceptor.replace(Arc::clone(tls));
        }
        self.sites.store(Arc::new(sites));
        self.settling.replace(chores);
        self.bounds.observing.only(&settings.observed());
        self.enforces.store(settings.enforces(), Ordering::Relaxed);
        self.healths.keep_only(&upstreams(settings));
        self.shown.replace(settings);
        Ok(())
    }

    /// In a task of its own: a store that is slow holds up no new settings.
    fn note_scopes(&self, settings: &Settings) {
        let (scopes, engine) = (scopes::of(settings), self.observed.engine.clone());
        tokio::spawn(async move { scopes::note(scopes, &engine).await });
    }

    /// Stops taking connections, lets requests end, and says how many did not in time.
    pub async fn drain(self) -> usize {
        self.stop.send_replace(true);
        let (mut server, drain) = (self.server, self.settings.drain);
        if tokio::time::timeout(drain, &mut server).await.is_err() {
            server.abort();
        }
        drop(self.settling);
        let left = if self.owns_engine {
            let left = self.observed.engine.shutdown(drain).await;
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

/// Every upstream that the settings name.
fn upstreams(settings: &Settings) -> Vec<Uri> {
    let routes = settings.routes.each();
    routes.map(|route| route.upstream.clone()).collect()
}

/// The operators' side alone, on the store that the settings name: the engine, and the routes to mount
/// somewhere. Nothing listens. Without a token it answers only who asks for a loopback name, for the
/// address in `admin` or for one of `admin_hosts`.
pub async fn operators(settings: &Settings) -> Result<(Engine, Router), StartError> {
    let observed = open_engine(settings, |store| store).await?;
    let engine = observed.engine.clone();
    let admin = settings.operators.address;
    let shown = Shown::new(settings, None, admin, true);
    let admin = Admin::new(observed, settings, admin, shown);
    Ok((engine, admin.router()))
}

async fn open_engine(
    settings: &Settings,
    wrap: impl FnOnce(Arc<dyn Store>) -> Arc<dyn Store>,
) -> Result<Observed, StartError> {
    let (storage, credentials) = (&settings.storage, &settings.credentials);
    let url = &storage.url;
    let store = wrap(onlyonce_stores::open(url).await?);
    let breaker = storage.breaker;
    let setup = Setup::new(onlyonce_stores::backend(url), store)
        .url(url)
        .guard(move |guarded| breaker.guard(guarded))
        .audit(storage.audit.clone());
    let observed = setup.open(|builder| {
        let mut builder = builder.running_max(storage.running_max);
        if let Some(namespace) = &storage.namespace {
            builder = builder.namespace(namespace);
        }
        if let Some(instance) = &storage.instance {
            builder = builder.instance(instance);
        }
        if let Some(secret) = &credentials.secret {
            builder = builder.secret(secret.clone());
        }
        if let Some(former) = &credentials.former_secret {
            builder = builder.rotate_from(former.clone());
        }
        builder
    });
    Ok(observed.await?)
}

/// Tells of a `response_bytes_max` that the store cannot keep.
fn warn_of_large_answers(settings: &Settings, engine: &Engine) {
    let Some(store_bytes_max) = engine.store().response_bytes_max() else {
        return;
    };
    let response_bytes_max = settings.limits.response_bytes;
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

async fn listen(address: SocketAddr, setting: &'static str) -> Result<TcpListener, StartError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| StartError::Listen {
            address,
            setting,
            source,
        })
}
