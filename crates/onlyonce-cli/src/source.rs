//! Where records are looked at: through a gateway's admin API, or straight in a store.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method};
use onlyonce_core::engine::{extend_with_steps, look_up_secret, steps_of};
use onlyonce_core::operate::{
    AttemptId, Filter, InDoubt, Newest, Page, Settled, Settlement, in_doubt, settle, settle_all,
};
use onlyonce_core::{
    About, Deed, Event, Key, KeyRule, Operate, Operated, Record, Response, Slot, SlotSecret, Store,
    StoreError, Timestamp,
};
use onlyonce_gateway::audit::{Trail, TrailError};
use onlyonce_gateway::{RecordView, RecordsPage, SettledView, StatsView};
use onlyonce_stores::OpenError;
use serde_json::{Value, json};
use thiserror::Error;

pub(crate) use self::admin::Admin;

use self::admin::listing;

mod admin;

/// One key in more scopes than this is not a search any more.
const FOUND_RECORDS_MAX: usize = 1000;
/// Outcomes that are settled at a time.
const SETTLED_MAX: usize = 1000;
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
    /// The audit trail that a change made straight in a store is written to; a gateway has its own
    #[arg(long, value_name = "FILE", requires = "store", global = true)]
    audit: Option<PathBuf>,
    /// Your name, for the audit trail [default: the user who runs this]
    #[arg(
        long = "as",
        env = "ONLYONCE_OPERATOR",
        value_name = "NAME",
        global = true
    )]
    operator: Option<String>,
}

impl Args {
    /// Who does this, for the audit trail.
    fn operator(&self) -> Option<Arc<str>> {
        operator(self.operator.as_deref())
    }
}

/// The name of an operator: as given, or else that of the user.
pub(crate) fn operator(given: Option<&str>) -> Option<Arc<str>> {
    let user = || std::env::var("USER").ok();
    let name = given.map(str::to_owned).or_else(user);
    name.filter(|name| !name.is_empty()).map(Into::into)
}

/// What is to be settled, how and why.
pub(crate) struct SettleAll {
    pub(crate) meant: InDoubt,
    /// Only this record.
    pub(crate) slot: Option<Slot>,
    /// Only these attempts.
    pub(crate) attempts: Option<Vec<AttemptId>>,
    /// The answer, if it happened.
    pub(crate) answer: Option<ByHand>,
    pub(crate) dry_run: bool,
}

/// An answer that an operator gives.
pub(crate) struct ByHand {
    pub(crate) status: http::StatusCode,
    pub(crate) content_type: Option<HeaderValue>,
    pub(crate) body: String,
    pub(crate) keep_for: Duration,
}

impl ByHand {
    fn response(&self) -> Arc<Response> {
        let mut response = Response::new(self.status, self.body.clone());
        if let Some(kind) = &self.content_type {
            response.headers.insert(CONTENT_TYPE, kind.clone());
        }
        Arc::new(response)
    }

    fn deed(&self) -> Deed {
        Deed::Resolved {
            status: self.status.as_u16(),
            keep_for: self.keep_for,
        }
    }

    /// As the admin API takes it.
    fn as_json(&self) -> Value {
        let kind = self.content_type.as_ref().and_then(|it| it.to_str().ok());
        let headers: Vec<_> = kind.iter().map(|kind| ("content-type", *kind)).collect();
        json!({
            "status": self.status.as_u16(),
            "headers": headers,
            "body": self.body,
            "keep_seconds": self.keep_for.as_secs(),
        })
    }
}

impl Args {
    /// The store's URL, where one was given.
    pub(crate) fn store(&self) -> Option<&str> {
        self.store.as_deref()
    }
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
    /// It was done, and could not be written down.
    #[error("it is done, but the audit trail does not say so")]
    Unaudited(#[from] TrailError),
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
    audit: Option<Trail>,
}

/// Records, and who changes them why.
pub(crate) struct Operator {
    pub(crate) source: Source,
    by: Option<Arc<str>>,
    reason: Option<Arc<str>>,
}

impl Operator {
    pub(crate) async fn open(args: &Args, reason: Option<&str>) -> Result<Self, SourceError> {
        let source = Source::open(args).await?;
        let by = args.operator();
        let reason = reason.map(Into::into);
        Ok(Self { source, by, reason })
    }

    fn operated(&self, deed: Deed) -> Operated {
        Operated {
            deed,
            by: self.by.clone(),
            reason: self.reason.clone(),
            via: "cli",
        }
    }

    /// The body of a request, with who asks and why.
    fn signed(&self, mut body: Value) -> Value {
        if let Some(by) = &self.by {
            body["by"] = json!(**by);
        }
        if let Some(reason) = &self.reason {
            body["reason"] = json!(**reason);
        }
        body
    }

    /// One record with its steps, and its body if that is asked for, which is noted.
    pub(crate) async fn show(&self, slot: &Slot, body: bool) -> Result<RecordView, SourceError> {
        let view = self.source.read(slot, body, self.by.as_deref()).await?;
        if let Source::Store(direct) = &self.source
            && body
            && view.response.is_some()
        {
            let record = direct.record(slot).await?;
            direct.note(slot, &record, self.operated(Deed::Read))?;
        }
        Ok(view)
    }

    /// Drops expired records, one bounded step; says how many.
    pub(crate) async fn sweep(&self, records_max: usize) -> Result<usize, SourceError> {
        match &self.source {
            Source::Store(direct) => {
                let swept = direct.operate()?.sweep(records_max).await?;
                if let Some(trail) = &direct.audit {
                    let records = swept as u64;
                    trail.note_at_large(self.operated(Deed::Swept { records }))?;
                }
                Ok(swept)
            }
            Source::Admin(admin) => {
                let path = format!("/api/v1/sweep?{}", self.signature());
                let swept: Value = admin.ask(Method::POST, &path, None).await?;
                let swept = swept["swept"].as_u64().unwrap_or(0);
                Ok(usize::try_from(swept).unwrap_or(usize::MAX))
            }
        }
    }

    /// Who asks and why, as a query.
    fn signature(&self) -> String {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        for (name, value) in [("by", &self.by), ("reason", &self.reason)] {
            if let Some(value) = value {
                query.append_pair(name, value);
            }
        }
        query.finish()
    }

    pub(crate) async fn forget(&self, slot: &Slot) -> Result<(), SourceError> {
        match &self.source {
            Source::Store(direct) => {
                let record = direct.record(slot).await?;
                // Its steps first: if they stayed, the next run would not run them.
                for (_, step, _) in steps_of(direct.operate()?, slot, &record).await? {
                    direct.operate()?.forget(&step).await?;
                }
                if !direct.operate()?.forget(slot).await? {
                    return Err(SourceError::Absent);
                }
                direct.note(slot, &record, self.operated(Deed::Forgot))
            }
            Source::Admin(admin) => {
                let path = format!("/api/v1/records/{slot}?{}", self.signature());
                admin.send(Method::DELETE, &path, None).await?;
                Ok(())
            }
        }
    }

    pub(crate) async fn extend(&self, slot: &Slot, extra: Duration) -> Result<(), SourceError> {
        match &self.source {
            Source::Store(direct) => {
                let record = direct.record(slot).await?;
                if !extend_with_steps(direct.operate()?, slot, extra).await? {
                    return Err(SourceError::Absent);
                }
                let deed = Deed::Extended { by: extra };
                direct.note(slot, &record, self.operated(deed))
            }
            Source::Admin(admin) => {
                let path = format!("/api/v1/records/{slot}/extend");
                let body = self.signed(json!({"seconds": extra.as_secs()}));
                admin.send(Method::POST, &path, Some(body)).await?;
                Ok(())
            }
        }
    }

    /// Gives the outcome of this attempt its answer.
    pub(crate) async fn resolve(
        &self,
        attempt: &AttemptId,
        answer: &ByHand,
    ) -> Result<(), SourceError> {
        let slot = attempt.slot();
        match &self.source {
            Source::Store(direct) => {
                let record = direct.record(slot).await?;
                let refused = |why: &str| Err(SourceError::Refused(why.to_owned()));
                if AttemptId::of(slot, &record) != *attempt {
                    return refused("another attempt was made since this one was looked at");
                }
                let settlement = Settlement::Happened(answer.response(), answer.keep_for);
                match settle(direct.operate()?, slot, &record, &settlement).await? {
                    Settled::Done | Settled::Unfreed(_) => {
                        direct.note(slot, &record, self.operated(answer.deed()))
                    }
                    Settled::Skipped => {
                        refused("only an unknown or lapsed outcome can be resolved")
                    }
                }
            }
            Source::Admin(admin) => {
                let path = format!("/api/v1/records/{slot}/resolve");
                let mut body = self.signed(answer.as_json());
                body["attempt_id"] = json!(attempt.to_string());
                admin.send(Method::POST, &path, Some(body)).await?;
                Ok(())
            }
        }
    }

    /// Settles the outcomes in doubt that are meant, or says which would be.
    pub(crate) async fn settle(&self, all: &SettleAll) -> Result<SettledView, SourceError> {
        match &self.source {
            Source::Admin(admin) => {
                let outcome = match &all.answer {
                    None => json!("did_not_happen"),
                    Some(answer) => json!({"happened": answer.as_json()}),
                };
                let seconds = |age: Option<Duration>| age.map(|age| age.as_secs());
                let attempts = all.attempts.as_ref();
                let attempts =
                    attempts.map(|all| all.iter().map(AttemptId::to_string).collect::<Vec<_>>());
                let body = self.signed(json!({
                    "outcome": outcome,
                    "operation": all.meant.operation,
                    "actor": all.meant.actor,
                    "holder": all.meant.holder,
                    "older_than": seconds(all.meant.age_min),
                    "younger_than": seconds(all.meant.age_max),
                    "slots": all.slot.map(|slot| vec![slot.to_string()]),
                    "attempts": attempts,
                    "dry_run": all.dry_run,
                }));
                let path = "/api/v1/records/settle";
                admin.ask(Method::POST, path, Some(body)).await
            }
            Source::Store(direct) => self.settle_in(direct, all).await,
        }
    }

    async fn settle_in(
        &self,
        direct: &Direct,
        all: &SettleAll,
    ) -> Result<SettledView, SourceError> {
        let operate = direct.operate()?;
        let (settlement, deed) = match &all.answer {
            None => (Settlement::DidNotHappen, Deed::Discarded),
            Some(answer) => {
                let settlement = Settlement::Happened(answer.response(), answer.keep_for);
                (settlement, answer.deed())
            }
        };
        let mut found = match (&all.attempts, &all.slot) {
            (Some(attempts), _) => direct.still_there(attempts).await?,
            (None, Some(slot)) => vec![(*slot, direct.record(slot).await?)],
            (None, None) => in_doubt(operate, &all.meant, SETTLED_MAX + 1).await?,
        };
        found.retain(|(_, record)| all.meant.admits(record));
        let more = found.len() > SETTLED_MAX;
        found.truncate(SETTLED_MAX);
        let named = all.attempts.as_ref().map_or(found.len(), Vec::len);
        let gone = named.saturating_sub(found.len());
        let settled = if all.dry_run {
            None
        } else {
            let note = |slot: &Slot, record: &Record| {
                let noted = direct.note(slot, record, self.operated(deed));
                noted.map_err(|error| with_sources(&error))
            };
            Some(settle_all(operate, &found, &settlement, note).await)
        };
        let mut view = SettledView::of(&found, settled, more);
        view.skipped += gone;
        Ok(view)
    }
}

/// An error and what lies behind it, in one line.
fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(&format!(": {error}"));
        source = error.source();
    }
    text
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
                audit: args.audit.as_ref().map(Trail::at),
            })));
        }
        let base = args.admin.as_deref().unwrap_or(ADMIN);
        Ok(Self::Admin(Box::new(Admin::new(base, args.token.clone()))))
    }

    /// The gateway, for what only a running one knows.
    pub(crate) fn admin(&self) -> Result<&Admin, SourceError> {
        match self {
            Self::Admin(admin) => Ok(admin),
            Self::Store(..) => Err(SourceError::Wrong(
                "a store does not know what happens: give --admin, a gateway's address".to_owned(),
            )),
        }
    }

    /// The newest records that `filter` lets through, but for its hint: see [`find`](Self::find).
    pub(crate) async fn newest(
        &self,
        filter: &Filter,
        after: Option<&str>,
        limit: usize,
    ) -> Result<RecordsPage, SourceError> {
        match self {
            Self::Store(direct) => direct.newest(filter, after, limit).await,
            Self::Admin(admin) => {
                let path = listing(filter, "newest", after, limit);
                admin.ask(Method::GET, &path, None).await
            }
        }
    }

    /// One page of the records that `filter` lets through, in the order of their slots.
    pub(crate) async fn list(
        &self,
        filter: &Filter,
        after: Option<Slot>,
        limit: usize,
    ) -> Result<Vec<RecordView>, SourceError> {
        match self {
            Self::Store(direct) => direct.list(filter, after, limit).await,
            Self::Admin(admin) => {
                let after = after.map(|slot| slot.to_string());
                let path = listing(filter, "slot", after.as_deref(), limit);
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

    /// One record, with its steps.
    pub(crate) async fn get(&self, slot: &Slot) -> Result<RecordView, SourceError> {
        self.read(slot, false, None).await
    }

    async fn read(
        &self,
        slot: &Slot,
        body: bool,
        by: Option<&str>,
    ) -> Result<RecordView, SourceError> {
        match self {
            Self::Store(direct) => {
                let found = direct.operate()?.get(slot).await?;
                let record = found.ok_or(SourceError::Absent)?;
                let steps = steps_of(direct.operate()?, slot, &record).await?;
                Ok(RecordView::of(slot, &record, body).with_steps(&steps))
            }
            Self::Admin(admin) => {
                let mut query = url::form_urlencoded::Serializer::new(String::new());
                query
                    .append_pair("body", &body.to_string())
                    .append_pair("steps", "true");
                if let Some(by) = by.filter(|_| body) {
                    query.append_pair("by", by);
                }
                let path = format!("/api/v1/records/{slot}?{}", query.finish());
                admin.ask(Method::GET, &path, None).await
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

    async fn record(&self, slot: &Slot) -> Result<Record, SourceError> {
        let found = self.operate()?.get(slot).await?;
        found.ok_or(SourceError::Absent)
    }

    /// The records of those attempts that no other one has followed.
    async fn still_there(
        &self,
        attempts: &[AttemptId],
    ) -> Result<Vec<(Slot, Record)>, SourceError> {
        let mut found = Vec::new();
        for attempt in attempts {
            let slot = attempt.slot();
            let record = self.operate()?.get(slot).await?;
            let record = record.filter(|it| AttemptId::of(slot, it) == *attempt);
            found.extend(record.map(|it| (*slot, it)));
        }
        Ok(found)
    }

    /// Writes what was done to the audit trail, where one was named.
    fn note(&self, slot: &Slot, record: &Record, operated: Operated) -> Result<(), SourceError> {
        let Some(trail) = &self.audit else {
            return Ok(());
        };
        let about = About {
            slot,
            meta: &record.meta,
            fingerprint: Some(&record.fingerprint),
            intake: None,
            route: None,
        };
        Ok(trail.note(&about, &Event::Operated(Box::new(operated)))?)
    }

    async fn newest(
        &self,
        filter: &Filter,
        after: Option<&str>,
        records_max: usize,
    ) -> Result<RecordsPage, SourceError> {
        let before = after.map(|text| {
            let (millis, slot) = text.split_once('-')?;
            let at = Timestamp::from_millis(millis.parse().ok()?);
            Some((at, Slot::from_hex(slot)?))
        });
        let wrong = || SourceError::Wrong("--after is what the list before ended with".to_owned());
        let before = before.map(|it| it.ok_or_else(wrong)).transpose()?;
        let page = Newest {
            before,
            records_max,
        };
        let found = self.operate()?.newest(filter, &page).await?;
        let next = found.last().filter(|_| found.len() == records_max);
        let view = |(slot, record): &(Slot, _)| RecordView::of(slot, record, false);
        Ok(RecordsPage {
            records: found.iter().map(view).collect(),
            next: next.map(|(slot, it)| format!("{}-{slot}", it.created_at.as_millis())),
        })
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
