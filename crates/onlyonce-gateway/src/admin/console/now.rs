//! *Now*: what happens, and what happened in the last minutes. The script keeps it up to date from
//! `/api/v1/now`; without it the page is as of when it was opened.

use axum::extract::State;
use maud::{Markup, html};

use super::super::Admin;
use super::super::now::{NowView, StoreOperationView};
use super::super::upstreams::UpstreamView;
use super::layout::{Page, Place, column, number_column, table};
use super::plot::{self, Line, SERIES, Unit};
use super::words::{grouped, millis, percent, span, to_second};

/// The plots below that of the requests.
const LINES: [Line; 4] = [
    Line {
        name: "hit_rate",
        title: "Share of replays",
        unit: Unit::Percent,
        least: 100.0,
        of: |it| Some(it.hit_rate? * 100.0),
        marked: None,
    },
    Line {
        name: "store",
        title: "Store, mean time",
        unit: Unit::Milliseconds,
        least: 0.01,
        of: |it| Some(it.store_ms),
        marked: None,
    },
    Line {
        name: "waiting",
        title: "Duplicates that wait",
        unit: Unit::Number,
        least: 1.0,
        of: |it| Some(it.waiting as f64),
        marked: None,
    },
    Line {
        name: "upstreams",
        title: "Failures of upstreams",
        unit: Unit::Number,
        least: 1.0,
        of: |it| Some(it.upstream_failures as f64),
        marked: Some((|it| it.upstreams_down > 0, "an upstream was down")),
    },
];

pub(super) async fn page(State(admin): State<Admin>) -> Page {
    admin.recount(false).await;
    let not_ready = admin.not_ready().await;
    let not_ready = not_ready.as_ref().map(|it| it.detail());
    let content = content(&admin.now(), not_ready, admin.observed_routes());
    admin.framed(Place::Now, "Now", Ok(content))
}

fn content(now: &NowView, not_ready: Option<&str>, observed: usize) -> Markup {
    html! {
        div data-live {
            div.row {
                h1 { "Now" }
                p.live {
                    span.dim { "as of " } time data-at { (to_second(&now.at)) } " "
                    span data-said role="status" aria-live="polite" {}
                    " " button.quiet data-pause type="button" hidden { "Pause" }
                }
            }
            (trouble(not_ready))
            (unprotected(observed))
            (tiles(now))
            div.plots {
                (plot::requests(&now.samples))
                @for line in &LINES { (plot::line(line, &now.samples)) }
            }
            div.columns {
                section aria-labelledby="outcomes" { h2 #outcomes { "Since the start" } (outcomes(now)) }
                section aria-labelledby="store" { h2 #store { "Store" } (operations(&now.store)) }
            }
            section aria-labelledby="upstreams" { h2 #upstreams { "Upstreams" } (upstreams(&now.upstreams)) }
        }
    }
}

/// What keeps requests from being served; the script shows it when the breaker opens, and hides it
/// when `/readyz` says yes.
fn trouble(not_ready: Option<&str>) -> Markup {
    html! {
        div.notice.bad role="alert" data-trouble hidden[not_ready.is_none()] {
            strong { "Not ready" }
            p { span data-why { (not_ready.unwrap_or_default()) } " " a href="/health" { "Health" } }
        }
    }
}

/// Who looks at the counts must know what is not in them.
fn unprotected(observed: usize) -> Markup {
    html! {
        @if observed > 0 {
            div.notice.warn {
                p {
                    @if observed == 1 { "One route is" } @else { (observed) " routes are" }
                    " only observed: nothing is protected there, and the counts of keyed requests are without it. "
                    a href="/observed" { "What enforcing would have done" }
                }
            }
        }
    }
}

fn tiles(now: &NowView) -> Markup {
    let tile = |name: &str, label: &str, value: String| {
        html! { div.tile { dt { (label) } dd data-now=(name) { (value) } } }
    };
    html! {
        dl.tiles {
            (tile("requests", "Keyed requests", grouped(now.totals.all())))
            (tile("hit_rate", "Replayed", percent(now.hit_rate)))
            (tile("running", "Running", grouped(now.running as u64)))
            (tile("waiting", "Waiting", grouped(now.waiting as u64)))
            div.tile {
                dt { a href="/in-doubt" { "In doubt" } }
                dd data-now="in_doubt_all" { (grouped(now.in_doubt)) }
            }
            (tile("uptime", "Running for", span(now.uptime_seconds)))
        }
    }
}

fn outcomes(now: &NowView) -> Markup {
    let head = html! { (column("Outcome")) (number_column("Requests")) };
    let rows = html! {
        @for series in &SERIES {
            tr {
                th scope="row" { span class={ "swatch " (series.name) } {} (series.label) }
                td.number data-now={ "totals." (series.name) } { (grouped((series.count)(&now.totals))) }
            }
        }
    };
    table("Requests since the start, by outcome", &head, &rows)
}

/// How the upstreams do, as a table.
pub(super) fn upstreams(upstreams: &[UpstreamView]) -> Markup {
    let head = html! {
        (column("Upstream")) (column("State")) (number_column("Failures")) (column("Last failure"))
    };
    let rows = html! {
        @for it in upstreams {
            tr {
                th scope="row" { (it.name) }
                td { @if it.up { span.badge.good { "up" } } @else { span.badge.bad { "down" } } }
                td.number { (grouped(it.failures)) }
                td.cause {
                    @match &it.last_failure {
                        Some(last) => { (last.kind) ", " (to_second(&last.at)) ": " (last.cause) }
                        None => span.dim { "none" },
                    }
                }
            }
        }
    };
    html! {
        @if upstreams.is_empty() {
            p.dim { "No request has gone to an upstream so far." }
        } @else {
            div data-table="upstreams" { (table("Upstreams", &head, &rows)) }
        }
    }
}

fn operations(operations: &[StoreOperationView]) -> Markup {
    let head = html! {
        (column("Operation")) (number_column("Count")) (number_column("Errors"))
        (number_column("Mean")) (number_column("99 in 100 within"))
    };
    let rows = html! {
        @for it in operations {
            tr {
                th scope="row" { (it.name) }
                td.number { (grouped(it.count)) }
                td.number { (grouped(it.errors)) }
                td.number { (millis(it.mean_ms)) }
                td.number { (it.p99_ms.map_or("—".to_owned(), millis)) }
            }
        }
    };
    html! { div data-table="store" { (table("What the store was asked for", &head, &rows)) } }
}
