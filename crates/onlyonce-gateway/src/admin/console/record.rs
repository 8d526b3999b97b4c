//! One record: its life so far, its steps, its answer without the body unless that is asked for, and
//! what an operator can do with it.

use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use http::StatusCode;
use maud::{Markup, html};
use onlyonce_core::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::super::Admin;
use super::super::extract::{Body, Path, Query};
use super::super::operator::Via;
use super::super::problem::Problem;
use super::super::records::{self, ShowQuery};
use super::super::view::{RecordView, ResponseView};
use super::doubt;
use super::fields::{Asked, Fields, Sent};
use super::layout::{Place, column, done, number_column, table, told};
use super::words::{
    self, actor, bytes, grouped, is_in_doubt, moment, short, slot_link, span, state,
};

/// Characters of a body that are shown; the API gives all of it.
const BODY_CHARS_MAX: usize = 64 * 1024;
/// How what is done here is told from the rest.
pub(super) const VIA: Via = Via("console");

pub(super) async fn page(
    State(admin): State<Admin>,
    Path(slot): Path<String>,
    Asked(fields): Asked,
) -> Response {
    let query = ShowQuery {
        body: fields.text("body") == Some("true"),
        by: None,
        steps: true,
    };
    let title = format!("Record {}", short(&slot));
    let lead = html! { p.dim { a href="/records" { "Records" } " / " (short(&slot)) } };
    let (of, heading) = (admin.clone(), title.clone());
    let found = async move {
        match records::show(State(of.clone()), VIA, Path(slot), Query(query)).await {
            Ok(record) => {
                let content = content(
                    &record.0,
                    fields.text("done"),
                    &Fields::default(),
                    of.history.wall(),
                );
                (StatusCode::OK, content)
            }
            Err(problem) => {
                let content = html! { h1 { (heading) } (told(&problem)) };
                (problem.status(), content)
            }
        }
    };
    admin.framed_soon(Place::Records, &title, lead, found).await
}

pub(super) async fn forget(
    State(admin): State<Admin>,
    Path(slot): Path<String>,
    Sent(fields): Sent,
) -> Response {
    let signed = json!({
        "by": fields.value("by"),
        "reason": fields.value("reason"),
        "attempt_id": fields.value("attempt_id"),
        "state": fields.value("state"),
    });
    let forgotten = async {
        reasoned(&fields)?;
        let query = Query(read(signed)?);
        records::forget(State(admin.clone()), VIA, Path(slot.clone()), query).await
    };
    let forgotten = forgotten.await.map(|_| "/records".to_owned());
    answer(&admin, slot, forgotten, &fields).await
}

pub(super) async fn extend(
    State(admin): State<Admin>,
    Path(slot): Path<String>,
    Sent(fields): Sent,
) -> Response {
    let extended = async {
        reasoned(&fields)?;
        let hours = u64::from(fields.number("hours")?.unwrap_or_default());
        let asked = json!({
            "seconds": hours * 3600,
            "by": fields.value("by"),
            "reason": fields.value("reason"),
        });
        let body = Body(read(asked)?);
        records::extend(State(admin.clone()), VIA, Path(slot.clone()), body).await
    };
    let back = format!("{}?done=extended", words::record_address(&slot));
    let extended = extended.await.map(|_| back);
    answer(&admin, slot, extended, &fields).await
}

/// Reads what the API would read.
pub(super) fn read<T: DeserializeOwned>(asked: serde_json::Value) -> Result<T, Problem> {
    serde_json::from_value(asked).map_err(|error| Problem::bad(error.to_string()))
}

/// The console always asks why; the API leaves it to its clients.
fn reasoned(fields: &Fields) -> Result<(), Problem> {
    let reason = fields.text("reason").map(|_| ());
    reason.ok_or_else(|| Problem::bad("say why: the reason is kept in the audit trail"))
}

/// Leads on when it is done, so that a reload does not do it again. Else shows the record as it is now,
/// with what was typed.
async fn answer(
    admin: &Admin,
    slot: String,
    acted: Result<String, Problem>,
    typed: &Fields,
) -> Response {
    let problem = match acted {
        Ok(then) => return Redirect::to(&then).into_response(),
        Err(problem) => problem,
    };
    let title = format!("Record {}", short(&slot));
    let query = Query(ShowQuery {
        body: false,
        by: None,
        steps: true,
    });
    let now = records::show(State(admin.clone()), VIA, Path(slot), query).await;
    let page = match now {
        Err(_) => admin.framed(Place::Records, &title, Err(problem)),
        Ok(record) => {
            let content = html! {
                (told(&problem))
                (content(&record.0, None, typed, admin.history.wall()))
            };
            let page = admin.framed(Place::Records, &title, Ok(content));
            page.with_status(problem.status())
        }
    };
    page.into_response()
}

fn content(record: &RecordView, said: Option<&str>, typed: &Fields, now: Timestamp) -> Markup {
    html! {
        h1 { "Record " code { (short(&record.slot)) } " " (state(&record.state)) }
        @if said == Some("extended") { (done("It is kept longer now.")) }
        @if is_in_doubt(record) {
            div.notice.warn { strong { "Its outcome is in doubt" } p { (words::doubt(record)) ". Nothing runs again until you decide." } }
        }
        div.columns {
            section.card aria-labelledby="life" { h2 #life { "Timeline" } (timeline(record, now)) }
            section.card aria-labelledby="facts" { h2 #facts { "Facts" } (facts(record)) }
        }
        @if !record.steps.is_empty() {
            section aria-labelledby="steps" { h2 #steps { "Steps" } (steps(record, now)) }
        }
        @if let Some(response) = &record.response {
            section aria-labelledby="answer" { h2 #answer { "Answer" } (response_of(record, response)) }
        }
        section aria-labelledby="act" { h2 #act { "Act" } (actions(record, typed)) }
    }
}

fn timeline(record: &RecordView, now: Timestamp) -> Markup {
    html! {
        ol.timeline {
            li { (moment(&record.created_at, now)) p { "Claimed" } }
            @if record.attempt > 1 {
                li { p { "Begun again: attempt " (record.attempt) ", by " (record.holder) } }
            }
            @for it in &record.steps {
                li { (moment(&it.created_at, now)) p { "Step " b { (it.name) } " " (state(&it.state)) } }
            }
            @if let Some(left) = record.lease_left_seconds {
                li { p { @if record.state == "lapsed" { "Its holder " (record.holder) " is gone" } @else { "Running at " (record.holder) ", lease good for " (span(left)) } } }
            }
            @if record.state == "unknown" { li { p { "How it ended is unknown" } } }
            @if let Some(at) = &record.completed_at {
                li { (moment(at, now)) p {
                    "Answer stored"
                    @if let Some(took) = record.execution_time_ms { ", after " (grouped(took)) " ms" }
                } }
            }
            @if record.replays > 0 { li { p { "Replayed " (grouped(record.replays)) " times" } } }
            li.to-come { time datetime=(record.expires_at) { (words::to_second(&record.expires_at)) } p { "Forgotten, in " (span(record.keep_left_seconds)) } }
        }
    }
}

fn facts(record: &RecordView) -> Markup {
    let fact = |name: &str, value: Markup| html! { dt { (name) } dd { (value) } };
    html! {
        dl.facts {
            (fact("Slot", html! { code.long { (record.slot) } }))
            (fact("Route or job", html! { (record.operation) }))
            (fact("Caller", actor(record.actor.as_deref())))
            @if !record.hint.is_empty() { (fact("Key", html! { code { (record.hint) } })) }
            (fact("Held by", html! { (record.holder) }))
            (fact("Attempt", html! { (record.attempt) }))
            (fact("If it lapses", html! { (record.on_lapse) }))
            (fact("Replays", html! { (grouped(record.replays)) }))
            (fact("Meaning (SHA-256)", html! { code.long { (record.fingerprint) } }))
            @if let Some(trace) = &record.trace { (fact("Trace", html! { code.long { (trace) } })) }
        }
    }
}

fn steps(record: &RecordView, now: Timestamp) -> Markup {
    let head = html! {
        (column("Step")) (column("State")) (number_column("Attempt")) (column("Begun")) (column("Value stored"))
        (column("If it lapses")) (column("Slot"))
    };
    let rows = html! {
        @for it in &record.steps {
            tr {
                th scope="row" { (it.name) }
                td { (state(&it.state)) }
                td.number { (it.attempt) }
                td { (moment(&it.created_at, now)) }
                td { @if let Some(at) = &it.completed_at { (moment(at, now)) } @else { span.dim { "not yet" } } }
                td { (it.on_lapse) }
                td { (slot_link(&it.slot)) }
            }
        }
    };
    table("Steps", &head, &rows)
}

fn response_of(record: &RecordView, response: &ResponseView) -> Markup {
    let head = html! { (column("Header")) (column("Value")) };
    let rows = html! {
        @for (name, value) in &response.headers {
            @for line in value.lines() { tr { th scope="row" { (name) } td { code.long { (line) } } } }
        }
    };
    html! {
        p { "Status " b { (response.status) } ", body of " (bytes(response.body_bytes as u64))
            @if let Some(resource) = &response.resource { ", made " code { (resource) } } "." }
        @if !response.headers.is_empty() { (table("Headers of the answer", &head, &rows)) }
        @match (&response.body, &response.body_b64) {
            (Some(text), _) => (body(text)),
            (None, Some(_)) => p.dim { "The body is no text; the API gives it in base64." },
            (None, None) => p { a href={ (words::record_address(&record.slot)) "?body=true#answer" } { "Show the body" } },
        }
    }
}

fn body(text: &str) -> Markup {
    let end = text.char_indices().nth(BODY_CHARS_MAX);
    let shown = end.map_or(text, |(end, _)| &text[..end]);
    html! {
        pre tabindex="0" aria-label="Body of the answer" { (shown) }
        @if end.is_some() { p.dim { "This is its beginning; the API gives all of it." } }
    }
}

fn actions(record: &RecordView, typed: &Fields) -> Markup {
    let hours = typed.raw("hours");
    let forgets = typed.raw("attempt_id").is_some();
    let none = Fields::default();
    let (extend, forget) = if forgets {
        (&none, typed)
    } else {
        (typed, &none)
    };
    let address = words::record_address(&record.slot);
    html! {
        @if is_in_doubt(record) {
            (doubt::settle_one(&record.attempt_id))
        }
        details.card open[hours.is_some()] {
            summary { "Keep it longer" }
            form.settle method="post" action={ (address) "/extend" } {
                div { label for="hours" { "Hours more" } input #hours.short name="hours" type="number" min="1" max="87600" value=(hours.unwrap_or("24")) required; }
                (doubt::signature("extend", extend))
                button type="submit" { "Keep it longer" }
            }
        }
        details.card open[forgets] {
            summary { "Forget it" }
            form.settle method="post" action={ (address) "/forget" } {
                p { "The next request with its key is a new one, and runs." }
                input type="hidden" name="attempt_id" value=(record.attempt_id);
                input type="hidden" name="state" value=(record.state);
                (doubt::signature("forget", forget))
                button.danger type="submit" { "Forget this record" }
            }
        }
    }
}
