//! *Callers*: who repeats itself or is refused most, and with which keys.

use axum::extract::State;
use maud::{Markup, html};
use onlyonce_observe::{BusyCaller, HotKey};

use super::super::Admin;
use super::super::callers::SHOWN;
use super::layout::{Page, Place, column, number_column, table};
use super::words::{actor, grouped, slot_link};

pub(super) async fn page(State(admin): State<Admin>) -> Page {
    let hot = admin.observers.hot();
    let content = content(&hot.busiest(SHOWN), &hot.hottest(SHOWN));
    admin.framed(Place::Callers, "Callers", Ok(content))
}

fn content(callers: &[BusyCaller], keys: &[HotKey]) -> Markup {
    html! {
        h1 { "Callers" }
        p.dim { "As this gateway has counted since it started." }
        section aria-labelledby="busiest" {
            h2 #busiest { "Who is replayed, in conflict or refused most" }
            @if callers.is_empty() {
                p.empty { "No caller has repeated a key so far." }
            } @else {
                (busiest(callers))
            }
        }
        section aria-labelledby="hottest" {
            h2 #hottest { "Keys that are repeated most" }
            @if keys.is_empty() {
                p.empty { "No key was repeated so far." }
            } @else {
                (hottest(keys))
            }
        }
    }
}

fn busiest(callers: &[BusyCaller]) -> Markup {
    let head = html! {
        (column("Caller")) (number_column("Replays")) (number_column("Conflicts")) (number_column("Other refusals"))
    };
    let rows = html! {
        @for it in callers {
            tr {
                th scope="row" {
                    @match &it.actor {
                        Some(name) => a href=(of_actor(name)) { (name) },
                        None => (actor(None)),
                    }
                }
                td.number { (grouped(it.replays)) }
                td.number { (grouped(it.conflicts)) }
                td.number { (grouped(it.refusals)) }
            }
        }
    };
    table("Callers, the busiest first", &head, &rows)
}

fn hottest(keys: &[HotKey]) -> Markup {
    let head = html! {
        (column("Slot")) (column("Key")) (column("Route")) (column("Caller"))
        (number_column("Replays")) (number_column("Refusals")) (number_column("Waiters at once"))
    };
    let rows = html! {
        @for it in keys {
            tr {
                th scope="row" { (slot_link(&it.slot)) }
                td { code { (it.key) } }
                td { (it.operation) }
                td { (actor(it.actor.as_deref())) }
                td.number { (grouped(it.replays)) }
                td.number { (grouped(it.refusals)) }
                td.number { (grouped(it.waiters as u64)) }
            }
        }
    };
    table("Keys, the most repeated first", &head, &rows)
}

/// Where the records of an actor are listed.
fn of_actor(name: &str) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    format!("/records?{}", query.append_pair("actor", name).finish())
}
