//! Where records are looked at: through a gateway's admin API, or straight in a store.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use onlyonce_core::engine::look_up_secret;
use onlyonce_core::operate::{Filter, Page, Resolved};
use onlyonce_core::{Key, KeyRule, Operate, Response, Slot, SlotSecret, Store, StoreError};
use onlyonce_gateway::{RecordView, RecordsPage, StatsView};
use onlyonce_stores::OpenError;
use serde_json::{Value, json};
use thiserror::Error;

pub(crate) use self::admin::Admin;

use self::admin::listing;

mod admin;

/// One key in more scopes than this is not a search any more.
const FOUND_RECORDS_MAX: usize = 1000;
/// Where a gateway's operators reach it unless told otherwise.
pub(crate) const ADMIN: &str = "http://127.0.0.1:9090";

/// Which gateway or store.
#[derive(clap::Args, Clone, Debug)]
#[group(skip)]
pub struct Args {
    /// A gateway's admin address [default: http://127.0.0.1:9090]
    #[arg(long, value_name = "URL", conflicts_with = "store", global = true)]
    admin: Option<String>,
    /// The admin token, if the gateway asks for one
    #[arg(
        long,
        env = "ONLYONCE_ADMIN_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN",
        global = true
    )]
    token: Option<String>,
    /// A store, instead of a gateway: a file store only while no gateway owns it
    #[arg(long, value_name = "URL", global = true)]
    store: Option<String>,
    /// The file with the slot secret, where one is configured: to find a key in a store
    #[arg(long, value_name = "FILE", requires = "store", global = true)]
    secret_file: Option<PathBuf>,
    /// The file with the slot secret before that one, while it is rotated: to find a key under both
    #[arg(long, value_name = "FILE", requires = "secret_file", global = true)]
    former_secret_file: Option<PathBuf>,
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why records could not be looked at.
#[derive(Debug, Error)]
pub enum SourceError {
    /// The store cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store cannot be operated.
    #[error("this store has no operators' side")]
    NoOperators,
    /// No gateway answers.
    #[error("no gateway answers at {address}: start one, or give --admin or --store")]
    Unreachable {
        /// Where it was sought.
        address: String,
        /// Why not.
        source: BoxError,
    },
    /// The gateway said no.
    #[error("{0}")]
    Refused(String),
    /// What was asked for is not there.
    #[error("no live record has this key or slot")]
    Absent,
    /// The records cannot be searched by key.
    #[error("keys cannot be told from their records in this store")]
    Secret(#[from] onlyonce_core::engine::OpenError),
    /// What was given names nothing, or too much.
    #[error("{0}")]
    Wrong(String),
}

/// The URL of a store that is looked at, and not made: a folder or file that does not exist is an
/// error.
fn existing(url: &str) -> String {
    let is_local = ["file:", "sqlite:"].iter().any(|it| url.starts_with(it));
    match url.split_once('?') {
        _ if !is_local => url.to_owned(),
        None => format!("{url}?mode=rw"),
        Some((_, options)) if options.split('&').any(|it| it.starts_with("mode=")) => {
            url.to_owned()
        }
        Some(_) => format!("{url}&mode=rw"),
    }
}

/// An opened source.
pub(crate) enum Source {
    Admin(Box<Admin>),
    Store(Box<Direct>),
}

pub(crate) struct Direct {
    store: Arc<dyn Store>,
    secret: Option<SlotSecret>,
    former: Option<SlotSecret>,
}

impl Source {
    pub(crate) async fn open(args: &Args) -> Result<Self, SourceError> {
        if let Some(url) = &args.store {
            let read = |file: &Option<PathBuf>| file.as_deref().map(read_secret).transpose();
            let (secret, former) = (read(&args.secret_file)?, read(&args.former_secret_file)?);
            let store = onlyonce_stores::open(&existing(url)).await?;
            return Ok(Self::Store(Box::new(Direct {
                store,
                secret,
                former,
            })));
        }
        let base = args.admin.as_deref().unwrap_or(ADMIN);
        Ok(Self::Admin(Box::new(Admin::new(base, args.token.clone()))))
    }

    /// One page of the records that `filter` lets through, but for its hint: see
    /// [`find`](Self::find).
    /// The gateway, for what only a running one knows.
    pub(crate) fn admin(&self) -> Result<&Admin, SourceError> {
        match self {
            Self::Admin(admin) => Ok(admin),
            Self::Store(..) => Err(SourceError::Wrong(
                "a store does not know what happens: give --admin, a gateway's address".to_owned(),
            )),
        }
    }

    pub(crate) async fn list(
        &self,
        filter: &Filter,
        after: Option<Slot>,
        limit: usize,
    ) -> Result<Vec<RecordView>, SourceError> {
        match self {
            Self::Store(direct) => direct.list(filter, after, limit).await,
            Self::Admin(admin) => {
                let path = listing(filter, after, limit);
                let page: RecordsPage = admin.ask(Method::GET, &path, None).await?;
                Ok(page.records)
            }
        }
    }

    /// The records of a key, in whatever scope.
    pub(crate) async fn find(&self, key: &str) -> Result<Vec<RecordView>, SourceError> {
        match self {
            Self::Store(direct) => direct.find(key).await,
            Self::Admin(admin) => {
                let body = json!({"key": key});
                let page: RecordsPage = admin
                    .ask(Method::POST, "/api/v1/records/find", Some(body))
                    .await?;
                Ok(page.records)
            }
        }
    }

    pub(crate) async fn get(&self, slot: &Slot, body: bool) -> Result<RecordView, SourceError> {
        match self {
            Self::Store(direct) => {
                let found = direct.operate()?.get(slot).await?;
                let record = found.ok_or(SourceError::Absent)?;
                Ok(RecordView::of(slot, &record, body))
            }
            Self::Admin(admin) => {
                let path = format!("/api/v1/records/{slot}?body={body}");
                admin.ask(Method::GET, &path, None).await
            }
        }
    }

    pub(crate) async fn forget(&self, slot: &Slot) -> Result<(), SourceError> {
        match self {
            Self::Store(direct) => match direct.operate()?.forget(slot).await? {
                true => Ok(()),
                false => Err(SourceError::Absent),
            },
            Self::Admin(admin) => {
                let path = format!("/api/v1/records/{slot}");
                admin.send(Method::DELETE, &path, None).await?;
                Ok(())
            }
        }
    }

    pub(crate) async fn extend(&self, slot: &Slot, extra: Duration) -> Result<(), SourceError> {
        match self {
            Self::Store(direct) => match direct.operate()?.extend(slot, extra).await? {
                true => Ok(()),
                false => Err(SourceError::Absent),
            },
            Self::Admin(admin) => {
                let path = format!("/api/v1/records/{slot}/extend");
                let body = json!({"seconds": extra.as_secs()});
                admin.send(Method::POST, &path, Some(body)).await?;
                Ok(())
            }
        }
    }

    pub(crate) async fn resolve(
        &self,
        slot: &Slot,
        status: http::StatusCode,
        body: &str,
        keep_for: Duration,
    ) -> Result<(), SourceError> {
        match self {
            Self::Store(direct) => {
                let response = Arc::new(Response::new(status, body.to_owned()));
                match direct.operate()?.resolve(slot, &response, keep_for).await? {
                    Resolved::Stored => Ok(()),
                    Resolved::Absent => Err(SourceError::Absent),
                    Resolved::Found(_) => Err(SourceError::Refused(
                        "only an unknown or lapsed outcome can be resolved".to_owned(),
                    )),
                }
            }
            Self::Admin(admin) => {
                let path = format!("/api/v1/records/{slot}/resolve");
                let keep_seconds = keep_for.as_secs();
                let body =
                    json!({"status": status.as_u16(), "body": body, "keep_seconds": keep_seconds});
                admin.send(Method::POST, &path, Some(body)).await?;
                Ok(())
            }
        }
    }

    pub(crate) async fn stats(&self) -> Result<StatsView, SourceError> {
        match self {
            Self::Store(direct) => {
                let stats = direct.operate()?.stats().await?;
                Ok(StatsView {
                    records: stats.records,
                    pending: stats.pending,
                    bytes: stats.bytes,
                    in_flight: 0,
                })
            }
            Self::Admin(admin) => admin.ask(Method::GET, "/api/v1/stats", None).await,
        }
    }

    /// Drops expired records, one bounded step; says how many.
    pub(crate) async fn sweep(&self, records_max: usize) -> Result<usize, SourceError> {
        match self {
            Self::Store(direct) => Ok(direct.operate()?.sweep(records_max).await?),
            Self::Admin(admin) => {
                let swept: Value = admin.ask(Method::POST, "/api/v1/sweep", None).await?;
                let swept = swept["swept"].as_u64().unwrap_or(0);
                Ok(usize::try_from(swept).unwrap_or(usize::MAX))
            }
        }
    }

    pub(crate) async fn ping(&self) -> Result<(), SourceError> {
        match self {
            Self::Store(direct) => Ok(direct.operate()?.ping().await?),
            Self::Admin(admin) => {
                admin.send(Method::GET, "/readyz", None).await?;
                Ok(())
            }
        }
    }
}

impl Direct {
    fn operate(&self) -> Result<&dyn Operate, SourceError> {
        self.store.operate().ok_or(SourceError::NoOperators)
    }

    async fn list(
        &self,
        filter: &Filter,
        after: Option<Slot>,
        records_max: usize,
    ) -> Result<Vec<RecordView>, SourceError> {
        let page = Page { after, records_max };
        let found = self.operate()?.list(filter, &page).await?;
        let view = |(slot, record): &(Slot, _)| RecordView::of(slot, record, false);
        Ok(found.iter().map(view).collect())
    }

    async fn find(&self, key: &str) -> Result<Vec<RecordView>, SourceError> {
        let key = Key::parse(key.as_bytes(), &KeyRule::any())
            .map_err(|error| SourceError::Wrong(error.to_string()))?;
        let operate = self.operate()?;
        let mut secrets = vec![look_up_secret(operate, self.secret.clone()).await?];
        if let Some(former) = &self.former {
            secrets.push(look_up_secret(operate, Some(former.clone())).await?);
        }
        let page = Page {
            after: None,
            records_max: FOUND_RECORDS_MAX,
        };
        let mut found = Vec::new();
        for secret in secrets.into_iter().flatten() {
            let filter = Filter {
                hint: Some(secret.hint(&key)),
                ..Filter::default()
            };
            found.extend(operate.list(&filter, &page).await?);
        }
        Ok(RecordView::of_key(&found))
    }
}

fn read_secret(path: &Path) -> Result<SlotSecret, SourceError> {
    let wrong = |why: String| SourceError::Wrong(format!("{}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    SlotSecret::from_hex(text.trim()).ok_or_else(|| wrong("not 64 hex digits".to_owned()))
}
