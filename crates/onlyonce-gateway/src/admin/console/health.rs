//! *Health*: what the gateway stands on, and by which settings it works.

use std::time::Duration;

use axum::extract::State;
use maud::{Markup, html};
use onlyonce_core::operate::Stats;

use super::super::Admin;
use super::super::health::{HealthView, RouteView, SettingView, SettingsView};
use super::layout::{Page, Place, column, number_column, table};
use super::now::upstreams;
use super::words::{bytes, grouped, span};

/// A store whose clock is this far from ours is worth a look.
const SKEW_MS_MAX: u64 = 1000;

pub(super) async fn page(State(admin): State<Admin>) -> Page {
    let health = admin.health().await;
    // A store that does not answer is not asked for more, and one that counts for long is not waited for.
    let stats = match health.store.error {
        Some(_) => None,
        None => {
            admin.recount(false).await;
            admin.sizes.counted()
        }
    };
    let content = content(&health, stats);
    admin.framed(Place::Health, "Health", Ok(content))
}

fn content(health: &HealthView, stats: Option<(Stats, Duration)>) -> Markup {
    html! {
        h1 { "Health" }
        @match &health.not_ready {
            None => div.notice.good role="status" { strong { "Ready" } p { "Keyed requests are served." } },
            Some(why) => div.notice.bad role="alert" { strong { "Not ready" } p { (why) } },
        }
        @for it in &health.warnings {
            div.notice.warn { strong { "Setting " code { (it.setting) } } p { (it.text) } }
        }
        div.columns {
            section.card aria-labelledby="gateway" { h2 #gateway { "Gateway" } (gateway(health)) }
            section.card aria-labelledby="store" { h2 #store { "Store" } (store(health, stats)) }
            section.card aria-labelledby="settings" { h2 #settings { "Settings" } (settings(&health.settings)) }
        }
        section aria-labelledby="upstreams" { h2 #upstreams { "Upstreams" } (upstreams(&health.upstreams)) }
        section aria-labelledby="routes" {
            h2 #routes { "Routes" }
            (routes(&health.settings.routes))
            @for it in &health.settings.routes { (contract(it)) }
        }
        section aria-labelledby="all" { h2 #all { "All settings" } (all(&health.settings.all)) }
    }
}

/// The contract of a route, with every value.
fn contract(route: &RouteView) -> Markup {
    let of = route.matches.as_deref().unwrap_or("all others");
    html! {
        @if let Some(contract) = &route.contract {
            details.card {
                summary { "Contract of " (of) }
                pre tabindex="0" aria-label={ "Contract of " (of) } { (contract) }
            }
        }
    }
}

/// Every setting that is in force.
fn all(settings: &[SettingView]) -> Markup {
    let head = html! { (column("Setting")) (column("In force")) (column("From")) };
    let rows = html! {
        @for it in settings {
            tr {
                th scope="row" { code { (it.name) } }
                td { (it.value) }
                td { @if it.given { "the settings" } @else { span.dim { "default" } } }
            }
        }
    };
    html! {
        p.dim { "Secrets are not shown." }
        (table("All settings that are in force", &head, &rows))
    }
}

/// A name and what it stands for.
fn fact(name: &str, value: &Markup) -> Markup {
    html! { dt { (name) } dd { (value) } }
}

/// Whether something is as it should be.
fn verdict(is_good: bool, words: &str) -> Markup {
    let class = if is_good { "badge good" } else { "badge bad" };
    html! { span class=(class) { (words) } }
}

fn gateway(health: &HealthView) -> Markup {
    let secret = match (health.secret.agrees, health.secret.rotating) {
        (true, false) => "as in the store",
        (true, true) => "being rotated",
        (false, _) => "another one is in the store",
    };
    let skew = health.clock_skew_ms;
    html! {
        dl.facts {
            (fact("Version", &html! { (health.version) }))
            (fact("Instance", &html! { (health.instance) }))
            (fact("Running for", &html! { (span(health.uptime_seconds)) }))
            (fact("Slot secret", &verdict(health.secret.agrees, secret)))
            (fact("Store's clock", &html! {
                (verdict(skew.unsigned_abs() < SKEW_MS_MAX, &format!("{skew:+} ms"))) " " span.dim { "from this machine's" }
            }))
            (fact("Audit trail", &html! { @if health.audit { "kept" } @else { "not kept" } }))
        }
    }
}

fn store(health: &HealthView, stats: Option<(Stats, Duration)>) -> Markup {
    let store = &health.store;
    html! {
        dl.facts {
            @if let Some(url) = &store.url { (fact("Address", &html! { code { (url) } })) }
            (fact("Answers", &match &store.error {
                None => verdict(true, "yes"),
                Some(error) => html! { (verdict(false, "no")) " " (error) },
            }))
            (fact("Circuit breaker", &verdict(store.breaker == "closed", &store.breaker)))
            @if let Some((stats, ago)) = stats {
                (fact("Records", &html! { (grouped(stats.records)) }))
                (fact("Of these, running", &html! { (grouped(stats.pending)) }))
                (fact("Size", &html! { (bytes(stats.bytes)) }))
                (fact("Counted", &html! { (span(ago.as_secs())) " ago" }))
            } @else if store.error.is_none() {
                (fact("Records", &html! { span.dim { "being counted: look again in a moment" } }))
            }
        }
    }
}

fn settings(settings: &SettingsView) -> Markup {
    html! {
        dl.facts {
            @if let Some(listen) = &settings.listen { (fact("Listens on", &html! { code { (listen) } })) }
            (fact("Operators", &html! { code { (settings.admin) } }))
            (fact("Admin token", &html! { @if settings.admin_token { "asked for" } @else { "none: loopback only" } }))
            @if !settings.admin_hosts.is_empty() {
                (fact("Admin hosts", &html! { (settings.admin_hosts.join(", ")) }))
            }
            @if let Some(namespace) = &settings.namespace { (fact("Namespace", &html! { (namespace) })) }
            (fact("Profile", &html! { (settings.profile) }))
        }
    }
}

fn routes(routes: &[RouteView]) -> Markup {
    let head = html! {
        (column("Requests")) (column("Called")) (column("Upstream")) (column("Profile"))
        (column("If it is unknown whether it ran")) (column("While the store is down")) (number_column("Kept for"))
    };
    let rows = html! {
        @for it in routes {
            tr {
                th scope="row" {
                    @match &it.matches { Some(matches) => code { (matches) }, None => "all others" }
                }
                td { (it.operation.as_deref().unwrap_or("by its path")) }
                td { (it.upstream.as_deref().unwrap_or("—")) }
                @if it.pass {
                    td colspan="4" { span.badge.warn { "passes unprotected" } }
                } @else {
                    td { (it.profile) }
                    td { (it.on_lapse) }
                    td { (it.store_down) }
                    td.number { (span(it.keep_seconds)) }
                }
            }
        }
    };
    table("Routes, the first that matches decides", &head, &rows)
}
