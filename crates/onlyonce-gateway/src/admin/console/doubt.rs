//! *In doubt*: the outcomes that wait for an operator's decision, and the form that decides. Nothing is
//! decided by it: it leads to a preview.

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use maud::{Markup, html};
use onlyonce_core::Timestamp;

use super::super::Admin;
use super::super::doubt::{self, DoubtQuery, OUTCOMES_MAX};
use super::super::extract::Query;
use super::super::problem::Problem;
use super::super::records::RecordsPage;
use super::super::view::RecordView;
use super::fields::{Asked, Fields};
use super::layout::{Place, column, done, number_column, table, told};
use super::words::{self, actor, moment, slot_link};

/// Which outcomes are shown.
pub(super) const FILTERS: [&str; 4] = ["operation", "actor", "holder", "older_than"];
/// Outcomes of a page.
const SHOWN: u32 = 200;

pub(super) async fn page(State(admin): State<Admin>, Asked(fields): Asked) -> Response {
    admin.recount(false).await;
    let lead = html! {
        h1 { "In doubt" }
        p { "It is unknown whether these requests took effect: their upstream or their gateway was lost with them. \
             Nothing runs again until somebody looks it up and decides." }
        (said(&fields))
        (filters(&fields))
    };
    let of = admin.clone();
    let found = async move {
        match search(&of, &fields).await {
            Ok(found) => {
                let found = outcomes(&found, &fields, of.history.wall());
                (StatusCode::OK, found)
            }
            Err(problem) => (problem.status(), told(&problem)),
        }
    };
    admin
        .framed_soon(Place::InDoubt, "In doubt", lead, found)
        .await
}

async fn search(admin: &Admin, fields: &Fields) -> Result<RecordsPage, Problem> {
    let text = |name| fields.text(name).map(str::to_owned);
    let query = DoubtQuery {
        operation: text("operation"),
        actor: text("actor"),
        holder: text("holder"),
        older_than: fields.number("older_than")?,
        younger_than: None,
        after: text("after"),
        limit: Some(SHOWN),
    };
    let page = doubt::list(State(admin.clone()), Query(query)).await?;
    Ok(page.0)
}

/// What was settled just now, in numbers only: they come from the address.
fn said(fields: &Fields) -> Markup {
    let number = |name| fields.number(name).ok().flatten();
    let (settled, skipped) = (number("settled"), number("skipped").unwrap_or_default());
    html! {
        @if let Some(settled) = settled {
            (done(&match skipped {
                0 => format!("{settled} outcomes settled."),
                _ => format!("{settled} outcomes settled; {skipped} were not in doubt any more."),
            }))
        }
    }
}

fn filters(fields: &Fields) -> Markup {
    let value = |name| fields.text(name).unwrap_or_default();
    html! {
        search.searches {
            form.filters method="get" action="/in-doubt" aria-label="Search outcomes in doubt" {
                div { label for="operation" { "Route or job" } input #operation name="operation" value=(value("operation")); }
                div { label for="actor" { "Caller" } input #actor name="actor" value=(value("actor")); }
                div { label for="holder" { "Gateway that held it" } input #holder name="holder" value=(value("holder")); }
                div { label for="older" { "At least this old, seconds" } input #older.short name="older_than" inputmode="numeric" pattern="[0-9]*" value=(value("older_than")); }
                div.buttons { button type="submit" { "Search" } " " a href="/in-doubt" { "All" } }
            }
        }
    }
}

fn outcomes(page: &RecordsPage, fields: &Fields, now: Timestamp) -> Markup {
    let found = &page.records;
    html! {
        @if found.is_empty() {
            p.empty { "Nothing is in doubt." }
        } @else {
            form method="post" action="/in-doubt/preview" {
                @for name in FILTERS {
                    @if let Some(value) = fields.text(name) { input type="hidden" name=(name) value=(value); }
                }
                (decision(&Fields::default(), Some(&which())))
                (preview_button())
                (list(found, now))
                @if let Some(next) = &page.next { p.more { a rel="next" href=(next_page(fields, next)) { "Newer outcomes" } } }
                (preview_button())
            }
        }
    }
}

/// What a form can choose from that came without a choice.
pub(super) async fn choices(admin: &Admin, fields: &Fields) -> Markup {
    match search(admin, fields).await {
        Ok(page) => list(&page.records, admin.history.wall()),
        Err(problem) => told(&problem),
    }
}

/// Which outcomes are decided.
fn which() -> Markup {
    html! {
        fieldset.card {
            legend { "Which" }
            label.choice { input type="radio" name="which" value="selected" checked; "Those that are selected below" }
            label.choice { input type="radio" name="which" value="all"; "All that this search finds, at most " (OUTCOMES_MAX) " at a time" }
        }
    }
}

/// The address of the page behind this one.
fn next_page(fields: &Fields, after: &str) -> String {
    match fields.query(FILTERS).as_str() {
        "" => format!("/in-doubt?after={after}"),
        filters => format!("/in-doubt?{filters}&after={after}"),
    }
}

fn preview_button() -> Markup {
    html! { p { button type="submit" { "Preview" } " " span.dim { "Nothing is changed yet." } } }
}

fn list(found: &[RecordView], now: Timestamp) -> Markup {
    let head = html! {
        th scope="col" data-select { span.unseen { "Selected" } }
        (column("Slot")) (column("Route or job")) (column("Caller")) (column("Since")) (column("Held by"))
        (number_column("Attempt")) (column("What is known"))
    };
    let rows = html! {
        @for it in found {
            tr {
                td { input type="checkbox" name="attempt" value=(it.attempt_id) aria-label={ "Select " (words::short(&it.slot)) }; }
                th scope="row" { (slot_link(&it.slot)) }
                td { (it.operation) }
                td { (actor(it.actor.as_deref())) }
                td { (moment(&it.created_at, now)) }
                td { (it.holder) }
                td.number { (it.attempt) }
                td { (words::doubt(it)) }
            }
        }
    };
    table("Outcomes in doubt, the oldest first", &head, &rows)
}

/// The form that settles one outcome, on the page of its record.
pub(super) fn settle_one(attempt_id: &str) -> Markup {
    html! {
        form method="post" action="/in-doubt/preview" {
            input type="hidden" name="attempt" value=(attempt_id);
            (decision(&Fields::default(), None))
            (preview_button())
        }
    }
}

/// What was found out, about which outcomes, who says so, and why; with what was typed before.
pub(super) fn decision(typed: &Fields, which: Option<&Markup>) -> Markup {
    let is = |outcome: &str| typed.text("outcome") == Some(outcome);
    let typed_or = |name, usual| typed.raw(name).unwrap_or(usual);
    html! {
        div.columns {
            fieldset.card.decision {
                legend { "What was found out" }
                label.choice { input type="radio" name="outcome" value="did_not_happen" required checked[is("did_not_happen")]; "It did not happen: the next request with the key runs it" }
                label.choice { input type="radio" name="outcome" value="happened" checked[is("happened")]; "It happened: retries get this answer" }
                div.answer {
                    div { label for="status" { "Status" } input #status.short name="status" type="number" min="200" max="999" value=(typed_or("status", "200")); }
                    div { label for="kind" { "Content-Type" } input #kind name="content_type" value=(typed_or("content_type", "application/json")); }
                    div.wide { label for="body" { "Body" } textarea #body name="body" rows="4" spellcheck="false" { (typed_or("body", "")) } }
                }
                label.choice { input type="radio" name="outcome" value="forget" checked[is("forget")]; "Forget it, whatever happened: the next request with the key runs it" }
            }
            @if let Some(which) = which { (which) }
        }
        fieldset.card { legend { "Who and why" } (signature("settle", typed)) }
    }
}

/// Who does it, and why: both are kept in the audit trail.
pub(super) fn signature(of: &str, typed: &Fields) -> Markup {
    let (by, reason) = (typed.raw("by"), typed.raw("reason"));
    html! {
        div.signature {
            div { label for={ "by-" (of) } { "Your name" } input id={ "by-" (of) } name="by" maxlength="128" autocomplete="name" value=[by]; }
            div.wide { label for={ "reason-" (of) } { "Reason, kept in the audit trail" } input id={ "reason-" (of) } name="reason" maxlength="1000" required value=[reason]; }
        }
    }
}
