//! *Records*: the newest first, searched by state, route, caller, slot, or by a key, which is a secret
//! and so is never part of an address.

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use maud::{Markup, html};
use onlyonce_core::Timestamp;
use onlyonce_core::operate::{Page as Span, StateName};

use super::super::Admin;
use super::super::extract::{Body, Query};
use super::super::problem::Problem;
use super::super::records::{self, Find, ListQuery, RecordsPage, Sort};
use super::super::view::RecordView;
use super::fields::{Asked, Fields, Sent};
use super::layout::{Place, column, number_column, table, told};
use super::words::{actor, grouped, moment, slot_link, state};

const TITLE: &str = "Records";
/// Records of a page.
const SHOWN: u32 = 50;
const SLOT_DIGITS: usize = 64;
/// What the search remembers from page to page.
const FILTERS: [&str; 6] = [
    "state",
    "operation",
    "actor",
    "older_than",
    "younger_than",
    "slot",
];

/// What was looked for, and found.
struct Found {
    records: Vec<RecordView>,
    /// The query of the next page, if there is one.
    next: Option<String>,
    is_search: bool,
}

pub(super) async fn page(State(admin): State<Admin>, Asked(fields): Asked) -> Response {
    let lead = lead(&fields);
    let of = admin.clone();
    let found = async move { shown(&of, search(&of, &fields).await) };
    admin.framed_soon(Place::Records, TITLE, lead, found).await
}

pub(super) async fn find(State(admin): State<Admin>, Sent(fields): Sent) -> Response {
    let key = fields.raw("key").unwrap_or_default().to_owned();
    let lead = lead(&Fields::default());
    let of = admin.clone();
    let found = async move {
        let found = records::find(State(of.clone()), Body(Find { key })).await;
        let found = found.map(|page| Found {
            records: page.0.records,
            next: None,
            is_search: true,
        });
        shown(&of, found)
    };
    admin.framed_soon(Place::Records, TITLE, lead, found).await
}

/// The search, which stays usable whatever becomes of it.
fn lead(fields: &Fields) -> Markup {
    html! { h1 { (TITLE) } (searches(fields)) }
}

fn shown(admin: &Admin, found: Result<Found, Problem>) -> (StatusCode, Markup) {
    match found {
        Ok(found) => (StatusCode::OK, results(&found, admin.history.wall())),
        Err(problem) => (problem.status(), told(&problem)),
    }
}

async fn search(admin: &Admin, fields: &Fields) -> Result<Found, Problem> {
    let text = |name| fields.text(name).map(str::to_owned);
    let query = ListQuery {
        state: text("state"),
        operation: text("operation"),
        actor: text("actor"),
        older_than: fields.number("older_than")?,
        younger_than: fields.number("younger_than")?,
        sort: Some(Sort::Newest),
        after: text("after"),
        limit: Some(SHOWN),
    };
    let RecordsPage { records, next } = match fields.text("slot") {
        Some(slot) => by_slot(admin, slot, &query).await?,
        None => records::list(State(admin.clone()), Query(query)).await?.0,
    };
    let filters = fields.query(FILTERS);
    let next = next.map(|after| match filters.as_str() {
        "" => format!("after={after}"),
        filters => format!("{filters}&after={after}"),
    });
    Ok(Found {
        records,
        next,
        is_search: !filters.is_empty() || fields.text("after").is_some(),
    })
}

/// The records whose slots start like this, and that the other fields let through: stores list by slot.
async fn by_slot(admin: &Admin, start: &str, query: &ListQuery) -> Result<RecordsPage, Problem> {
    let start = start.to_ascii_lowercase();
    let is_start = start.len() <= SLOT_DIGITS && start.bytes().all(|it| it.is_ascii_hexdigit());
    if !is_start {
        return Err(Problem::bad("a slot is written as up to 64 hex digits"));
    }
    let operate = admin.operate()?;
    let filter = query.filter()?;
    let first = records::slot(&format!("{start:0<SLOT_DIGITS$}"))?;
    let after = query.after.as_deref().map(records::slot).transpose()?;
    let span = Span {
        after: Some(after.unwrap_or(first)),
        records_max: SHOWN as usize,
    };
    // A list starts behind a slot, so the lowest one is looked for by itself.
    let exact = match after {
        None => operate.get(&first).await?.filter(|it| filter.admits(it)),
        Some(_) => None,
    };
    let exact = exact.map(|record| (first, record));
    let listed = operate.list(&filter, &span).await?;
    let is_full = listed.len() == span.records_max;
    let found = exact.into_iter().chain(listed);
    let views = found.map(|(slot, record)| RecordView::of(&slot, &record, false));
    let records: Vec<_> = views.take_while(|it| it.slot.starts_with(&start)).collect();
    let is_more = is_full && records.len() >= SHOWN as usize;
    let next = records.last().filter(|_| is_more).map(|it| it.slot.clone());
    Ok(RecordsPage { records, next })
}

fn searches(fields: &Fields) -> Markup {
    let value = |name| fields.text(name).unwrap_or_default();
    html! {
        search.searches {
            form.filters method="get" action="/records" aria-label="Search records" {
                div { label for="state" { "State" }
                    select #state name="state" {
                        option value="" { "any" }
                        @for it in StateName::ALL {
                            option value=(it.as_str()) selected[value("state") == it.as_str()] { (it.as_str()) }
                        }
                    }
                }
                div { label for="operation" { "Route or job" } input #operation name="operation" value=(value("operation")); }
                div { label for="actor" { "Caller" } input #actor name="actor" value=(value("actor")); }
                div { label for="younger" { "Not older than, seconds" } input #younger.short name="younger_than" inputmode="numeric" pattern="[0-9]*" value=(value("younger_than")); }
                div { label for="slot" { "Slot starts with" } input #slot name="slot" pattern="[0-9a-fA-F]*" maxlength="64" value=(value("slot")); }
                div.buttons { button type="submit" { "Search" } " " a href="/records" { "Newest" } }
            }
            form.filters method="post" action="/records/find" aria-label="Find the records of a key" {
                div.wide { label for="key" { "Key, as the client sent it" } input #key name="key" required autocomplete="off" spellcheck="false"; }
                div.buttons { button type="submit" { "Find key" } }
            }
        }
    }
}

fn results(found: &Found, now: Timestamp) -> Markup {
    html! {
        @if found.records.is_empty() && found.is_search {
            p.empty { "No live record is like this." }
        } @else if found.records.is_empty() {
            p.empty { "There are no records yet. The first request with a key makes one." }
        } @else {
            (list(&found.records, now))
            @if let Some(next) = &found.next {
                p.more { a rel="next" href={ "/records?" (next) } { "Older records" } }
            }
        }
    }
}

fn list(records: &[RecordView], now: Timestamp) -> Markup {
    let head = html! {
        (column("Slot")) (column("State")) (column("Route or job")) (column("Caller"))
        (column("First claimed")) (column("Answer")) (number_column("Replays")) (number_column("Attempt"))
    };
    let rows = html! {
        @for it in records {
            tr {
                th scope="row" { (slot_link(&it.slot)) }
                td { (state(&it.state)) }
                td { (it.operation) }
                td { (actor(it.actor.as_deref())) }
                td { (moment(&it.created_at, now)) }
                td { @if let Some(response) = &it.response { (response.status) } @else { span.dim { "none" } } }
                td.number { (grouped(it.replays)) }
                td.number { (it.attempt) }
            }
        }
    };
    table("Records", &head, &rows)
}
