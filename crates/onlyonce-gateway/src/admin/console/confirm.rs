//! Settling outcomes in two steps: a preview, which is a dry run, and the settling of exactly what the
//! preview showed.

use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use onlyonce_core::Timestamp;
use serde_json::{Value, json};

use super::super::Admin;
use super::super::doubt::{SettleMany, SettledView};
use super::super::problem::Problem;
use super::doubt::{self, FILTERS, decision};
use super::fields::{Fields, Sent};
use super::layout::{Page, Place, column, table, told};
use super::record::{VIA, read};
use super::words::{actor, grouped, moment, slot_link};

/// What goes from the preview to the settling as it was typed.
const CARRIED: [&str; 6] = ["outcome", "status", "content_type", "body", "by", "reason"];

pub(super) async fn preview(State(admin): State<Admin>, Sent(fields): Sent) -> Page {
    let found = settled(&admin, &fields, true).await;
    let now = admin.history.wall();
    match found {
        Ok(found) => {
            let content = confirmation(&found, &fields, now);
            admin.framed(Place::InDoubt, "Preview", Ok(content))
        }
        Err(problem) => again(&admin, "Preview", &problem, &fields).await,
    }
}

pub(super) async fn settle(State(admin): State<Admin>, Sent(fields): Sent) -> Response {
    match settled(&admin, &fields, false).await {
        Ok(done) if done.failed.is_empty() => {
            let (settled, skipped) = (done.settled, done.skipped);
            let back = format!("/in-doubt?settled={settled}&skipped={skipped}");
            Redirect::to(&back).into_response()
        }
        // Which ones failed, and why, is too much for an address.
        Ok(done) => admin
            .framed(Place::InDoubt, "Settle", Ok(in_part(&done)))
            .into_response(),
        Err(problem) => again(&admin, "Settle", &problem, &fields)
            .await
            .into_response(),
    }
}

/// What was refused, and the same form with what was typed.
async fn again(admin: &Admin, title: &str, problem: &Problem, fields: &Fields) -> Page {
    let carried = FILTERS.iter().chain(&["attempt", "which"]);
    let has_choice = fields.text("attempt").is_some() || fields.text("which") == Some("all");
    let choices = if has_choice {
        Markup::default()
    } else {
        doubt::choices(admin, fields).await
    };
    let content = html! {
        p.dim { a href="/in-doubt" { "In doubt" } " / " (title) }
        h1 { (title) }
        (told(problem))
        form method="post" action="/in-doubt/preview" {
            @for name in carried {
                @for value in fields.all(name) { input type="hidden" name=(name) value=(value); }
            }
            (decision(fields, None))
            p { button type="submit" { "Preview" } " " a href="/in-doubt" { "Cancel" } }
            (choices)
        }
    };
    let page = admin.framed(Place::InDoubt, title, Ok(content));
    page.with_status(problem.status())
}

fn in_part(done: &SettledView) -> Markup {
    let head = html! { (column("Slot")) (column("Why")) };
    let rows = html! {
        @for it in &done.failed {
            tr { th scope="row" { (slot_link(&it.slot)) } td.cause { (it.why) } }
        }
    };
    html! {
        p.dim { a href="/in-doubt" { "In doubt" } " / Settle" }
        h1 { "Not all were settled" }
        div.notice.warn role="alert" {
            strong { (grouped(done.settled as u64)) " of " (grouped(done.matched as u64)) " outcomes settled" }
            p { "These were not, or not as a whole:" }
        }
        (table("Outcomes that were not settled", &head, &rows))
        p { a href="/in-doubt" { "What is in doubt now" } }
    }
}

/// Settles as the API does, or says what would be.
async fn settled(admin: &Admin, fields: &Fields, dry_run: bool) -> Result<SettledView, Problem> {
    let asked: SettleMany = read(request(fields, dry_run)?)?;
    admin.settle_many(VIA, asked).await
}

/// The request to the API that a form stands for.
fn request(fields: &Fields, dry_run: bool) -> Result<Value, Problem> {
    let mut asked = json!({
        "outcome": outcome(fields)?,
        "dry_run": dry_run,
        "by": fields.value("by"),
        "reason": fields.text("reason").unwrap_or_default(),
    });
    // Whoever settles what a search finds has to see it first.
    if dry_run && fields.text("which") == Some("all") {
        for name in FILTERS {
            asked[name] = fields.value(name);
        }
        asked["older_than"] = json!(fields.number("older_than")?);
        return Ok(asked);
    }
    // Each with its attempt: what was found out about it says nothing about a later one.
    let attempts: Vec<&str> = fields.all("attempt").collect();
    if attempts.is_empty() {
        return Err(Problem::bad("select at least one outcome"));
    }
    asked["attempts"] = json!(attempts);
    Ok(asked)
}

fn outcome(fields: &Fields) -> Result<Value, Problem> {
    let kind = fields.text("content_type");
    let headers: Vec<_> = kind.iter().map(|kind| ("content-type", *kind)).collect();
    // Browsers end the lines of a form in their own way.
    let body = fields.raw("body").unwrap_or_default().replace("\r\n", "\n");
    match fields.text("outcome") {
        Some("happened") => Ok(json!({"happened": {
            "status": fields.number("status")?.unwrap_or(200),
            "headers": headers,
            "body": body,
        }})),
        Some(other) => Ok(json!(other)),
        None => Err(Problem::bad("say what was found out")),
    }
}

/// The decision in words.
fn words(fields: &Fields) -> String {
    match fields.text("outcome") {
        Some("happened") => format!(
            "They happened: retries get status {} and the answer that you gave.",
            fields.text("status").unwrap_or("200")
        ),
        Some("did_not_happen") => {
            "They did not happen: the next request with each key runs it.".to_owned()
        }
        _ => "They are forgotten: the next request with each key runs it.".to_owned(),
    }
}

fn confirmation(found: &SettledView, fields: &Fields, now: Timestamp) -> Markup {
    let count = grouped(found.matched as u64);
    html! {
        p.dim { a href="/in-doubt" { "In doubt" } " / Preview" }
        h1 { "Preview" }
        @if found.matched == 0 {
            p.empty { "None of these is in doubt any more." }
            p.more { a href="/in-doubt" { "What is in doubt now" } }
        } @else {
            div.notice.warn role="status" {
                strong { (count) @if found.matched == 1 { " outcome" } @else { " outcomes" } " would be settled" }
                p { (words(fields)) }
                p { "Reason: " (fields.text("reason").unwrap_or_default()) }
            }
            @if found.skipped > 0 { p { (grouped(found.skipped as u64)) " more were selected, and are not in doubt any more." } }
            @if found.more { p { "There are more than can be settled at a time: settle these, then look again." } }
            form method="post" action="/in-doubt/settle" {
                @for name in CARRIED {
                    @if let Some(value) = fields.raw(name) { input type="hidden" name=(name) value=(value); }
                }
                @for it in &found.records { input type="hidden" name="attempt" value=(it.attempt_id); }
                button.danger type="submit" { "Settle " (count) }
                " " a href="/in-doubt" { "Cancel" }
            }
            (list(found, now))
        }
    }
}

fn list(found: &SettledView, now: Timestamp) -> Markup {
    let head = html! {
        (column("Slot")) (column("Route or job")) (column("Caller")) (column("Since"))
    };
    let rows = html! {
        @for it in &found.records {
            tr {
                th scope="row" { (slot_link(&it.slot)) }
                td { (it.operation) }
                td { (actor(it.actor.as_deref())) }
                td { (moment(&it.created_at, now)) }
            }
        }
    };
    table("Outcomes that would be settled", &head, &rows)
}
