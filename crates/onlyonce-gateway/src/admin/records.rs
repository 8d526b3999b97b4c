//! Records: look, forget, keep longer, answer what nobody else can.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use http::{HeaderName, HeaderValue, StatusCode};
use onlyonce_core::engine::{extend_with_steps, steps_of};
use onlyonce_core::operate::{
    AttemptId, Filter, Newest, Page, Settled, Settlement, StateName, settle,
};
use onlyonce_core::{Deed, Key, KeyRule, Operate, Record, Response, Slot, StoreError, Timestamp};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::Admin;
use super::extract::{Body, Path, Query};
use super::operator::{Name, Reason, Via};
use super::problem::Problem;
use super::view::RecordView;
use crate::config::Count;

/// Records of a page, at most.
const PAGE_RECORDS_MAX: usize = 1000;
const PAGE_RECORDS: usize = 100;
/// How long an operator's answer is kept at least, unless asked otherwise.
const RESOLVED_KEEP: Duration = Duration::from_secs(24 * 3600);
const SWEEP_RECORDS: usize = 10_000;
/// Characters of a key that is looked for: no policy lets a longer one through.
const KEY_CHARS_MAX: usize = 16 * 1024;
const HEADER_NAME_CHARS_MAX: usize = 256;
/// How an attempt is named.
pub(super) const ATTEMPT_ID: &str = "^[0-9a-fA-F]{64}-[0-9]{1,15}-[0-9]{1,9}$";

/// How long a record can be kept: ten years at most, as `ttl`.
type Seconds = Count<1, { 3650 * 24 * 3600 }>;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    /// Only in this state.
    #[schemars(extend("enum" = ["pending", "lapsed", "done", "failed", "unknown"]))]
    pub(super) state: Option<String>,
    /// Only of this route or job.
    pub(super) operation: Option<String>,
    /// Only by this actor.
    pub(super) actor: Option<String>,
    /// Only first claimed at least this many seconds ago.
    #[schemars(range(max = u32::MAX))]
    pub(super) older_than: Option<u32>,
    /// Only first claimed at most this many seconds ago.
    #[schemars(range(max = u32::MAX))]
    pub(super) younger_than: Option<u32>,
    /// In which order; by their slots unless asked otherwise.
    pub(super) sort: Option<Sort>,
    /// Start after this record: the `next` of the page before, or a slot.
    #[schemars(regex(pattern = "^([0-9]{1,15}-)?[0-9a-fA-F]{64}$"))]
    pub(super) after: Option<String>,
    /// How many at most; 100 unless asked otherwise, 1000 at most.
    #[schemars(range(max = u32::MAX))]
    pub(super) limit: Option<u32>,
}

/// The order of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(super) enum Sort {
    /// By slot.
    Slot,
    /// The newest first.
    Newest,
}

/// Where a page starts: behind this record.
pub(super) struct Cursor {
    /// When it was created, where the order is that of time.
    created_at: Option<Timestamp>,
    slot: Slot,
}

impl Cursor {
    pub(super) fn parse(text: &str) -> Result<Self, Problem> {
        let (created_at, text) = match text.split_once('-') {
            Some((millis, slot)) => (millis.parse().ok(), slot),
            None => (None, text),
        };
        Ok(Self {
            created_at: created_at.map(Timestamp::from_millis),
            slot: slot(text)?,
        })
    }
}

/// A page of records.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct RecordsPage {
    /// The records.
    pub records: Vec<RecordView>,
    /// Where the next page starts; absent on the last one.
    pub next: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Find {
    /// The key, as the client sent it. What cannot be a key has no records.
    #[schemars(length(min = 1, max = KEY_CHARS_MAX))]
    pub(super) key: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ShowQuery {
    /// Whether the stored body shall be shown. That it was read is kept in the audit trail.
    #[serde(default)]
    pub(super) body: bool,
    /// The operator's name, where the body is read.
    pub(super) by: Option<Name>,
    /// Whether its durable steps shall be shown: their records are searched for.
    #[serde(default)]
    pub(super) steps: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Extend {
    /// How much longer to keep it, in seconds.
    pub(super) seconds: Seconds,
    /// The operator's name.
    pub(super) by: Option<Name>,
    /// Why: kept in the audit trail.
    pub(super) reason: Option<Reason>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ForgetQuery {
    /// Only if it is still this attempt, as the record's `attempt_id` names it.
    #[schemars(regex(pattern = ATTEMPT_ID))]
    pub(super) attempt_id: Option<String>,
    /// Only if it is still in this state.
    #[schemars(extend("enum" = ["pending", "lapsed", "done", "failed", "unknown"]))]
    pub(super) state: Option<String>,
    /// The operator's name.
    pub(super) by: Option<Name>,
    /// Why: kept in the audit trail.
    pub(super) reason: Option<Reason>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SweepQuery {
    /// The operator's name.
    by: Option<Name>,
    /// Why: kept in the audit trail.
    reason: Option<Reason>,
}

/// The answer to an operation whose outcome nobody else knows.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Resolve {
    /// The status retries shall get.
    status: Count<200, 999>,
    /// The body they shall get.
    #[serde(default)]
    body: String,
    /// Its headers.
    #[serde(default)]
    #[schemars(schema_with = "header_fields")]
    headers: Vec<(String, String)>,
    /// How long it is kept, in seconds, and at least as long as the record would have been; a day unless
    /// asked otherwise.
    keep_seconds: Option<Seconds>,
    /// Only if it is still this attempt, as the record's `attempt_id` names it.
    #[schemars(regex(pattern = ATTEMPT_ID))]
    attempt_id: Option<String>,
    /// The operator's name.
    by: Option<Name>,
    /// Why: kept in the audit trail.
    reason: Option<Reason>,
}

/// An answer that an operator gives.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AnswerGiven {
    /// The status retries shall get.
    status: Count<200, 999>,
    /// The body they shall get.
    #[serde(default)]
    body: String,
    /// Its headers.
    #[serde(default)]
    #[schemars(schema_with = "header_fields")]
    headers: Vec<(String, String)>,
    /// How long it is kept, in seconds, and at least as long as the record would have been; a day unless
    /// asked otherwise.
    keep_seconds: Option<Seconds>,
}

/// How much is in the store.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct StatsView {
    /// Live records.
    pub records: u64,
    /// Of these, pending.
    pub pending: u64,
    /// Bytes they take, near enough.
    pub bytes: u64,
    /// Calls that run or wait in this gateway.
    pub in_flight: usize,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Swept {
    /// Expired records dropped.
    swept: usize,
}

pub(super) async fn list(
    State(admin): State<Admin>,
    Query(query): Query<ListQuery>,
) -> Result<Json<RecordsPage>, Problem> {
    let filter = query.filter()?;
    let limit = query.limit.and_then(|limit| usize::try_from(limit).ok());
    let records_max = limit.unwrap_or(PAGE_RECORDS).clamp(1, PAGE_RECORDS_MAX);
    let after = query.after.as_deref().map(Cursor::parse).transpose()?;
    if query.sort == Some(Sort::Newest) {
        return Ok(Json(admin.newest(&filter, after, records_max).await?));
    }
    let page = Page {
        after: after.map(|after| after.slot),
        records_max,
    };
    Ok(Json(admin.page(&filter, &page).await?))
}

impl ListQuery {
    /// Which records it lets through.
    pub(super) fn filter(&self) -> Result<Filter, Problem> {
        Ok(Filter {
            state: self.state.as_deref().map(state_name).transpose()?,
            operation: self.operation.clone(),
            actor: self.actor.clone(),
            hint: None,
            age_min: self.older_than.map(seconds),
            age_max: self.younger_than.map(seconds),
        })
    }
}

fn state_name(text: &str) -> Result<StateName, Problem> {
    StateName::from_str(text).map_err(|error| Problem::bad(format!("state {error}")))
}

/// In a body, not in a path: a key is a secret, and paths are logged.
pub(super) async fn find(
    State(admin): State<Admin>,
    Body(find): Body<Find>,
) -> Result<Json<RecordsPage>, Problem> {
    if find.key.is_empty() || find.key.chars().count() > KEY_CHARS_MAX {
        let why = format!("a key has 1 to {KEY_CHARS_MAX} characters");
        return Err(Problem::bad(why));
    }
    let Ok(key) = Key::parse(find.key.as_bytes(), &KeyRule::any()) else {
        return Ok(Json(RecordsPage {
            records: Vec::new(),
            next: None,
        }));
    };
    let page = Page {
        after: None,
        records_max: PAGE_RECORDS_MAX,
    };
    let mut found = Vec::new();
    // While the secret is rotated, a key has a record under each.
    for engine in [Some(&admin.engine), admin.engine.former()]
        .into_iter()
        .flatten()
    {
        let filter = Filter {
            hint: Some(engine.hint(&key)),
            ..Filter::default()
        };
        found.extend(admin.operate()?.list(&filter, &page).await?);
    }
    Ok(Json(RecordsPage {
        records: RecordView::of_key(&found),
        next: None,
    }))
}

impl Admin {
    /// A page of the newest records. Where it starts behind a record whose time is not given and that
    /// is gone, it is the first page.
    pub(super) async fn newest(
        &self,
        filter: &Filter,
        after: Option<Cursor>,
        records_max: usize,
    ) -> Result<RecordsPage, Problem> {
        let operate = self.operate()?;
        let before = match after {
            None => None,
            Some(Cursor { created_at, slot }) => match created_at {
                Some(at) => Some((at, slot)),
                None => operate.get(&slot).await?.map(|it| (it.created_at, slot)),
            },
        };
        let page = Newest {
            before,
            records_max,
        };
        let found = operate.newest(filter, &page).await?;
        let next = found.last().filter(|_| found.len() == records_max);
        let next = next.map(|(slot, it)| format!("{}-{slot}", it.created_at.as_millis()));
        let view = |(slot, record): &(Slot, _)| RecordView::of(slot, record, false);
        Ok(RecordsPage {
            records: found.iter().map(view).collect(),
            next,
        })
    }

    async fn page(&self, filter: &Filter, page: &Page) -> Result<RecordsPage, Problem> {
        let found = self.operate()?.list(filter, page).await?;
        let next = (found.len() == page.records_max)
            .then(|| found.last().map(|(slot, _)| slot.to_string()))
            .flatten();
        let records = found
            .iter()
            .map(|(slot, record)| RecordView::of(slot, record, false))
            .collect();
        Ok(RecordsPage { records, next })
    }
}

pub(super) async fn show(
    State(admin): State<Admin>,
    via: Via,
    Path(address): Path<String>,
    Query(query): Query<ShowQuery>,
) -> Result<Json<RecordView>, Problem> {
    let slot = slot(&address)?;
    match admin.operate()?.get(&slot).await? {
        Some(record) => {
            let view = RecordView::of(&slot, &record, query.body);
            if query.body && record.response().is_some() {
                let operated = via.operated(Deed::Read, query.by, None);
                admin.observers.operated(&slot, &record, operated);
            }
            if !query.steps {
                return Ok(Json(view));
            }
            let steps = steps_of(admin.operate()?, &slot, &record).await?;
            Ok(Json(view.with_steps(&steps)))
        }
        None => Err(absent()),
    }
}

pub(super) async fn forget(
    State(admin): State<Admin>,
    via: Via,
    Path(address): Path<String>,
    Query(query): Query<ForgetQuery>,
) -> Result<StatusCode, Problem> {
    let slot = slot(&address)?;
    let operate = admin.operate()?;
    let record = operate.get(&slot).await?.ok_or_else(absent)?;
    is_as_seen(&slot, &record, query.attempt_id.as_deref())?;
    let state = query.state.as_deref().map(state_name).transpose()?;
    if state.is_some_and(|seen| seen != StateName::of(&record)) {
        return Err(changed());
    }
    forget_steps(operate, &slot, &record).await?;
    if !operate.forget(&slot).await? {
        return Err(absent());
    }
    let operated = via.operated(Deed::Forgot, query.by, query.reason);
    admin.observers.operated(&slot, &record, operated);
    admin.sizes.are_stale();
    Ok(StatusCode::NO_CONTENT)
}

/// Forgets the steps of a record, before it: if they stayed, the next run would not run them.
async fn forget_steps(
    operate: &dyn Operate,
    slot: &Slot,
    record: &Record,
) -> Result<(), StoreError> {
    for (_, step, _) in steps_of(operate, slot, record).await? {
        operate.forget(&step).await?;
    }
    Ok(())
}

pub(super) async fn extend(
    State(admin): State<Admin>,
    via: Via,
    Path(address): Path<String>,
    Body(extend): Body<Extend>,
) -> Result<Json<RecordView>, Problem> {
    let slot = slot(&address)?;
    let operate = admin.operate()?;
    let by = Duration::from_secs(extend.seconds.get());
    let mut before = operate.get(&slot).await?.ok_or_else(absent)?;
    if !extend_with_steps(operate, &slot, by).await? {
        return Err(absent());
    }
    let operated = via.operated(Deed::Extended { by }, extend.by, extend.reason);
    // It is told even if the store cannot be asked any more.
    let after = operate.get(&slot).await;
    if let Ok(Some(record)) = &after {
        admin.observers.operated(&slot, record, operated);
    } else {
        before.keep_left = before.keep_left.saturating_add(by);
        before.expires_at = before.expires_at.plus(by);
        admin.observers.operated(&slot, &before, operated);
    }
    let record = after?.ok_or_else(absent)?;
    Ok(Json(RecordView::of(&slot, &record, false)))
}

pub(super) async fn resolve(
    State(admin): State<Admin>,
    via: Via,
    Path(address): Path<String>,
    Body(resolve): Body<Resolve>,
) -> Result<Json<RecordView>, Problem> {
    let slot = slot(&address)?;
    let given = AnswerGiven {
        status: resolve.status,
        body: resolve.body,
        headers: resolve.headers,
        keep_seconds: resolve.keep_seconds,
    };
    let (response, keep_for) = given.read()?;
    let status = response.status.as_u16();
    let settlement = Settlement::Happened(Arc::new(response), keep_for);
    let operate = admin.operate()?;
    let record = operate.get(&slot).await?.ok_or_else(absent)?;
    is_as_seen(&slot, &record, resolve.attempt_id.as_deref())?;
    match settle(operate, &slot, &record, &settlement).await? {
        Settled::Done | Settled::Unfreed(_) => {}
        Settled::Skipped => {
            return Err(Problem::new(
                StatusCode::CONFLICT,
                "only an unknown or lapsed outcome can be resolved, and this record is not one",
            ));
        }
    }
    let deed = Deed::Resolved { status, keep_for };
    let operated = via.operated(deed, resolve.by, resolve.reason);
    admin.observers.operated(&slot, &record, operated);
    admin.sizes.are_stale();
    let record = operate.get(&slot).await?.ok_or_else(absent)?;
    Ok(Json(RecordView::of(&slot, &record, true)))
}

pub(super) async fn stats(State(admin): State<Admin>) -> Result<Json<StatsView>, Problem> {
    let stats = admin.operate()?.stats().await?;
    Ok(Json(StatsView {
        records: stats.records,
        pending: stats.pending,
        bytes: stats.bytes,
        in_flight: admin.engine.in_flight(),
    }))
}

pub(super) async fn sweep(
    State(admin): State<Admin>,
    via: Via,
    Query(query): Query<SweepQuery>,
) -> Result<Json<Swept>, Problem> {
    admin.operate()?;
    let swept = admin.engine.sweep(SWEEP_RECORDS).await?;
    let records = swept as u64;
    let operated = via.operated(Deed::Swept { records }, query.by, query.reason);
    admin.observers.operated_at_large(operated);
    admin.sizes.are_stale();
    Ok(Json(Swept { swept }))
}

impl AnswerGiven {
    /// The answer, and how long it is kept.
    pub(super) fn read(&self) -> Result<(Response, Duration), Problem> {
        let status = u16::try_from(self.status.get()).ok();
        let status = status.and_then(|status| StatusCode::from_u16(status).ok());
        let status = status.ok_or_else(|| Problem::bad("this is not the status of an answer"))?;
        let mut response = Response::new(status, self.body.clone());
        for (name, value) in &self.headers {
            let wrong = || Problem::bad(format!("`{name}` is not a header that can be sent"));
            if name.len() > HEADER_NAME_CHARS_MAX {
                return Err(wrong());
            }
            if !value.bytes().all(|it| matches!(it, b'\t' | b' '..=b'~')) {
                return Err(wrong());
            }
            let value = HeaderValue::from_str(value).map_err(|_| wrong())?;
            let name = HeaderName::from_str(name).map_err(|_| wrong())?;
            response.headers.append(name, value);
        }
        let keep_for = self.keep_seconds;
        let keep_for = keep_for.map_or(RESOLVED_KEEP, |kept| Duration::from_secs(kept.get()));
        Ok((response, keep_for))
    }
}

/// What a header may be, as `AnswerGiven::read` reads it.
fn header_fields(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {
            "type": "array",
            "prefixItems": [
                {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": HEADER_NAME_CHARS_MAX,
                    "pattern": "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$",
                },
                {"type": "string", "pattern": "^[\\t -~]*$"},
            ],
            "items": false,
            "minItems": 2,
        },
    })
}

pub(super) fn seconds(seconds: u32) -> Duration {
    Duration::from_secs(u64::from(seconds))
}

pub(super) fn slot(text: &str) -> Result<Slot, Problem> {
    Slot::from_hex(text).ok_or_else(|| Problem::bad("a slot is written as 64 hex digits"))
}

/// Refuses where another attempt was made since this one was seen.
fn is_as_seen(slot: &Slot, record: &Record, seen: Option<&str>) -> Result<(), Problem> {
    let seen = seen.map(str::parse::<AttemptId>).transpose();
    let seen = seen.map_err(|error| Problem::bad(error.to_string()))?;
    if seen.is_none_or(|seen| seen == AttemptId::of(slot, record)) {
        Ok(())
    } else {
        Err(changed())
    }
}

fn changed() -> Problem {
    Problem::new(
        StatusCode::CONFLICT,
        "this record has changed since it was looked at: look again",
    )
}

fn absent() -> Problem {
    Problem::not_found("no live record is in this slot")
}
