//! Where records are looked at: through a gateway's admin API, or straight in a store.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::operate::{Filter, Page, Resolved, StateName};
use onlyonce_core::{Operate, Response, Slot, Store, StoreError};
use onlyonce_gateway::{RecordView, RecordsPage, StatsView};
use onlyonce_stores::OpenError;
use serde_json::{Value, json};
use thiserror::Error;

const ADMIN: &str = "http://127.0.0.1:9090";
/// An operator waits no longer for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);

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
}

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
        source: reqwest::Error,
    },
    /// The gateway said no.
    #[error("{0}")]
    Refused(String),
    /// What was asked for is not there.
    #[error("no live record is in this slot")]
    Absent,
    /// What was given names nothing, or too much.
    #[error("{0}")]
    Wrong(String),
}

/// Which records to list.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) state: Option<StateName>,
    pub(crate) operation: Option<String>,
    pub(crate) actor: Option<String>,
    pub(crate) after: Option<Slot>,
    pub(crate) limit: usize,
}

/// An opened source.
pub(crate) enum Source {
    Admin(Admin),
    Store(Arc<dyn Store>),
}

pub(crate) struct Admin {
    client: reqwest::Client,
    base: String,
    token: Option<String>,
}

impl Source {
    pub(crate) async fn open(args: &Args) -> Result<Self, SourceError> {
        if let Some(url) = &args.store {
            return Ok(Self::Store(onlyonce_stores::open(url).await?));
        }
        let base = args.admin.as_deref().unwrap_or(ADMIN);
        Ok(Self::Admin(Admin {
            client: reqwest::Client::new(),
            base: base.trim_end_matches('/').to_owned(),
            token: args.token.clone(),
        }))
    }

    pub(crate) async fn list(&self, wanted: &Wanted) -> Result<Vec<RecordView>, SourceError> {
        match self {
            Self::Store(store) => {
                let filter = Filter {
                    state: wanted.state,
                    operation: wanted.operation.clone(),
                    actor: wanted.actor.clone(),
                };
                let page = Page {
                    after: wanted.after,
                    records_max: wanted.limit,
                };
                let found = operate(store)?.list(&filter, &page).await?;
                let view = |(slot, record): &(Slot, _)| RecordView::of(slot, record, false);
                Ok(found.iter().map(view).collect())
            }
            Self::Admin(admin) => {
                let mut query = vec![("limit", wanted.limit.to_string())];
                query.extend(wanted.state.map(|state| ("state", state.to_string())));
                query.extend(wanted.operation.clone().map(|it| ("operation", it)));
                query.extend(wanted.actor.clone().map(|it| ("actor", it)));
                query.extend(wanted.after.map(|slot| ("after", slot.to_string())));
                let path = format!("/api/v1/records?{}", encoded(&query));
                let page: RecordsPage = admin.ask(reqwest::Method::GET, &path, None).await?;
                Ok(page.records)
            }
        }
    }

    pub(crate) async fn get(&self, slot: &Slot, body: bool) -> Result<RecordView, SourceError> {
        match self {
            Self::Store(store) => {
                let found = operate(store)?.get(slot).await?;
                let record = found.ok_or(SourceError::Absent)?;
                Ok(RecordView::of(slot, &record, body))
            }
            Self::Admin(admin) => {
                let path = format!("/api/v1/records/{slot}?body={body}");
                admin.ask(reqwest::Method::GET, &path, None).await
            }
        }
    }

    pub(crate) async fn forget(&self, slot: &Slot) -> Result<(), SourceError> {
        match self {
            Self::Store(store) => match operate(store)?.forget(slot).await? {
                true => Ok(()),
                false => Err(SourceError::Absent),
            },
            Self::Admin(admin) => {
                let path = format!("/api/v1/records/{slot}");
                admin.send(reqwest::Method::DELETE, &path, None).await?;
                Ok(())
            }
        }
    }

    pub(crate) async fn extend(&self, slot: &Slot, extra: Duration) -> Result<(), SourceError> {
        match self {
            Self::Store(store) => match operate(store)?.extend(slot, extra).await? {
                true => Ok(()),
                false => Err(SourceError::Absent),
            },
            Self::Admin(admin) => {
                let path = format!("/api/v1/records/{slot}/extend");
                let body = json!({"seconds": extra.as_secs()});
                admin.send(reqwest::Method::POST, &path, Some(body)).await?;
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
            Self::Store(store) => {
                let response = Arc::new(Response::new(status, body.to_owned()));
                match operate(store)?.resolve(slot, &response, keep_for).await? {
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
                admin.send(reqwest::Method::POST, &path, Some(body)).await?;
                Ok(())
            }
        }
    }

    pub(crate) async fn stats(&self) -> Result<StatsView, SourceError> {
        match self {
            Self::Store(store) => {
                let stats = operate(store)?.stats().await?;
                Ok(StatsView {
                    records: stats.records,
                    pending: stats.pending,
                    bytes: stats.bytes,
                    in_flight: 0,
                })
            }
            Self::Admin(admin) => admin.ask(reqwest::Method::GET, "/api/v1/stats", None).await,
        }
    }

    /// Drops expired records, one bounded step; says how many.
    pub(crate) async fn sweep(&self, records_max: usize) -> Result<usize, SourceError> {
        match self {
            Self::Store(store) => Ok(operate(store)?.sweep(records_max).await?),
            Self::Admin(admin) => {
                let swept: Value = admin
                    .ask(reqwest::Method::POST, "/api/v1/sweep", None)
                    .await?;
                let swept = swept["swept"].as_u64().unwrap_or(0);
                Ok(usize::try_from(swept).unwrap_or(usize::MAX))
            }
        }
    }

    pub(crate) async fn ping(&self) -> Result<(), SourceError> {
        match self {
            Self::Store(store) => Ok(operate(store)?.ping().await?),
            Self::Admin(admin) => {
                admin.send(reqwest::Method::GET, "/readyz", None).await?;
                Ok(())
            }
        }
    }
}

impl Admin {
    async fn ask<T: serde::de::DeserializeOwned>(
        &self,
        method: reqwest::Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<T, SourceError> {
        let text = self.send(method, path, body).await?;
        serde_json::from_str(&text).map_err(|_| {
            let address = &self.base;
            SourceError::Refused(format!(
                "{address} does not answer like an onlyonce gateway"
            ))
        })
    }

    async fn send(
        &self,
        method: reqwest::Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<String, SourceError> {
        let unreachable = |source| SourceError::Unreachable {
            address: self.base.clone(),
            source,
        };
        let mut request = self
            .client
            .request(method, format!("{}{path}", self.base))
            .timeout(ANSWER_MAX);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        if let Some(body) = body {
            request = request
                .header(http::header::CONTENT_TYPE, "application/json")
                .body(body.to_string());
        }
        let answer = request.send().await.map_err(unreachable)?;
        let status = answer.status();
        let text = answer.text().await.map_err(unreachable)?;
        if status.is_success() {
            return Ok(text);
        }
        if status == http::StatusCode::NOT_FOUND {
            return Err(SourceError::Absent);
        }
        let problem: Value = serde_json::from_str(&text).unwrap_or_default();
        let detail = problem["detail"].as_str().unwrap_or("it gave no reason");
        Err(SourceError::Refused(format!(
            "the gateway said {status}: {detail}"
        )))
    }
}

fn operate(store: &Arc<dyn Store>) -> Result<&dyn Operate, SourceError> {
    store.operate().ok_or(SourceError::NoOperators)
}

fn encoded(query: &[(&str, String)]) -> String {
    let mut text = url::form_urlencoded::Serializer::new(String::new());
    for (name, value) in query {
        text.append_pair(name, value);
    }
    text.finish()
}
