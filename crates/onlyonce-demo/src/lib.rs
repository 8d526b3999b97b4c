//! The systems that onlyonce was made for, small and real: an intake service, a form broker, a
//! sync service for offline clients, orders, and a service that knows nothing of keys. All on one
//! address, on SQLite or PostgreSQL; each row and its idempotency record in one transaction.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use onlyonce::core::engine::Builder;
use onlyonce::tower::KnownHosts;
use onlyonce::{Engine, Policy, Profile, StoreError};
use onlyonce_observe::audit::AuditSettings;
use onlyonce_observe::traces::Traces;
use onlyonce_observe::{Observed, Setup};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub use self::db::DbError;
pub use self::definitions::DefinitionError;
pub use self::tools::IntakeTools;

use self::actor::Tokens;
use self::db::Db;
use self::ids::Ids;
use self::once::Once;
use self::outbox::Outbox;
use self::own_log::OwnLog;
use self::record::{Noted, Recorder};
use self::resources::Shop;

mod actor;
mod audit;
mod db;
mod definitions;
mod forms;
mod hosts;
mod ids;
mod inbox;
mod intake;
mod once;
mod outbox;
mod own_log;
mod record;
mod reply;
mod resources;
mod rules;
mod tools;

/// D0 §9.4.2.
const AUDIT_KEEP: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// What the services are told.
#[derive(Clone, Debug)]
pub struct Options {
    /// `sqlite:PATH` or `postgres://…`: rows and records.
    pub database: String,
    /// A JSON file with intakes; those built in otherwise.
    pub intakes: Option<PathBuf>,
    /// A JSON file with forms; those built in otherwise.
    pub forms: Option<PathBuf>,
    /// The profile of the intake service: the name of one of the documents' two.
    pub intake_profile: String,
    /// Where a new user's welcome mail is asked for: a URL, or a path of this service.
    pub mail: Option<String>,
    /// Where clients reach the services, if something is in front of them.
    pub front: Option<SocketAddr>,
    /// How long audit events are kept.
    pub audit_keep: Duration,
    /// Names by which clients reach them besides `localhost` and addresses of this machine.
    pub hosts: Vec<String>,
    /// Where an audit trail is written, besides the audit events in the database.
    pub audit: Option<PathBuf>,
    /// Where the span of each keyed request goes.
    pub traces: Option<Traces>,
}

impl Options {
    /// The usual services on `database`.
    pub fn new(database: impl Into<String>) -> Self {
        Self {
            database: database.into(),
            intakes: None,
            forms: None,
            intake_profile: "formbridge".to_owned(),
            mail: None,
            front: None,
            audit_keep: AUDIT_KEEP,
            hosts: Vec::new(),
            audit: None,
            traces: None,
        }
    }
}

/// Why the services did not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// The database cannot be used.
    #[error(transparent)]
    Database(#[from] DbError),
    /// The intakes or the forms cannot be read.
    #[error(transparent)]
    Definitions(#[from] DefinitionError),
    /// The intake service has no such profile.
    #[error(transparent)]
    Profile(#[from] onlyonce::profile::UnknownProfile),
    /// The engine cannot be opened on the database, or its audit trail not be written.
    #[error(transparent)]
    Engine(#[from] onlyonce_observe::OpenError),
    /// The store failed at once.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The listener has no address.
    #[error("the services cannot listen")]
    Listen(#[from] std::io::Error),
}

/// The services, serving.
pub struct Demo {
    address: SocketAddr,
    observed: Observed,
    tools: IntakeTools,
    recorder: Recorder,
    traces: Option<Traces>,
    stop: watch::Sender<bool>,
    server: JoinHandle<()>,
    deliveries: JoinHandle<()>,
}

/// On a database of their own the services keep their name over a restart, and so tell of the ends of
/// what they stored before it.
fn named(engine: Builder, options: &Options) -> Builder {
    if options.database.starts_with("sqlite") {
        engine.instance("onlyonce-demo")
    } else {
        engine
    }
}

impl Demo {
    /// Opens the database and serves on `listener`.
    pub async fn start(options: &Options, listener: TcpListener) -> Result<Self, StartError> {
        let definitions: Vec<intake::Definition> = definitions::read(options.intakes.as_deref())?;
        let forms = definitions::read(options.forms.as_deref())?;
        let profile: Profile = options.intake_profile.parse()?;
        let address = listener.local_addr()?;
        let db = Db::open(&options.database).await?;
        let ids = Ids::new();
        let outbox = Outbox::new(ids.clone());
        let recorder = Recorder::start(db.clone(), ids.clone(), options.audit_keep);
        let setup = Setup::new(db.backend(), db.store())
            .url(&options.database)
            .audit(options.audit.clone().map(AuditSettings::at))
            .subscribe(Arc::new(recorder.clone()))
            .subscribe(Arc::new(OwnLog));
        let observed = setup.open(|engine| named(engine, options)).await?;
        let noted = Noted::of(&recorder, &observed.engine);
        let tokens = Tokens::agree(&*db.store(), ids.clone()).await?;

        let definitions: Vec<_> = definitions.into_iter().map(Arc::new).collect();
        let desks = definitions
            .iter()
            .map(|definition| intake::Desk {
                db: db.clone(),
                ids: ids.clone(),
                outbox: outbox.clone(),
                noted: noted.clone(),
                definition: Arc::clone(definition),
            })
            .collect();
        let shop = Shop {
            db: db.clone(),
            ids: ids.clone(),
            outbox: outbox.clone(),
            mail: options.mail.clone(),
        };
        let once = Once {
            engine: observed.engine.clone(),
            traces: options.traces.clone(),
        };
        let router = Router::new()
            .merge(intake::router(desks, &observed, &once, &db, profile))
            .merge(forms::router(forms, &db, &ids, &once, policy("broker")?))
            .merge(resources::synced(&shop, &once, &policy("guardian")?))
            .merge(resources::orders(&shop, &once, &policy("middleware")?))
            .merge(resources::charges(&shop))
            .merge(inbox::router(&db, &ids, &once))
            .merge(audit::router(&db, noted, observed.observers.trail()))
            .layer(from_fn_with_state(tokens.clone(), actor::identify))
            .route("/api/v1/tokens", post(actor::issue).with_state(tokens))
            .route("/healthz", get(async || "ok\n"));
        let tools = IntakeTools::new(router.clone(), definitions, profile.policy());
        let hosts = KnownHosts::of(options.front.unwrap_or(address))
            .and(&options.hosts)
            .and([outbox::HOME]);
        let router = router
            .route_service("/mcp", tools.clone().over_http())
            .layer(from_fn_with_state(hosts, hosts::admitted));

        let (stop, mut stopped) = watch::channel(false);
        let stopping = async move {
            // A sender that is gone means that too.
            drop(stopped.wait_for(|stop| *stop).await);
        };
        let server = tokio::spawn(async move {
            let serving = axum::serve(listener, router).with_graceful_shutdown(stopping);
            if let Err(error) = serving.await {
                tracing::error!(target: "onlyonce_demo", %error, "the services ended");
            }
        });
        let deliveries = tokio::spawn(outbox.deliver(db, format!("http://{address}")));
        Ok(Self {
            address,
            observed,
            tools,
            recorder,
            traces: options.traces.clone(),
            stop,
            server,
            deliveries,
        })
    }

    /// Where it serves.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The engine that all services share.
    pub fn engine(&self) -> &Engine {
        &self.observed.engine
    }

    /// The same with everyone who is told what it does: for a gateway in front, whose operators then
    /// see all of it.
    pub fn observed(&self) -> &Observed {
        &self.observed
    }

    /// The intakes as MCP tools, for a transport other than `/mcp` of this address.
    pub fn tools(&self) -> &IntakeTools {
        &self.tools
    }

    /// Takes no more requests, lets running ones end for at most `grace`, and says how many did
    /// not.
    pub async fn stop(self, grace: Duration) -> usize {
        self.stop.send_replace(true);
        self.deliveries.abort();
        let mut server = self.server;
        if tokio::time::timeout(grace, &mut server).await.is_err() {
            server.abort();
        }
        let left = self.observed.engine.shutdown(grace).await;
        self.observed.observers.close().await;
        let _ = tokio::time::timeout(grace, self.recorder.flush()).await;
        if let Some(traces) = &self.traces {
            traces.close().await;
        }
        left
    }
}

/// The rules of the profile called `name`.
fn policy(name: &str) -> Result<Policy, onlyonce::profile::UnknownProfile> {
    Ok(name.parse::<Profile>()?.policy())
}
