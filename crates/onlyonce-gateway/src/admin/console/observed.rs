//! *Observed*: what enforcing would have done on routes that are only observed, in the sentences of
//! `onlyonce observe report`.

use axum::extract::State;
use maud::{Markup, html};

use super::super::Admin;
use super::super::observed::{ObservedReport, ObservedView};
use super::layout::{Page, Place};

pub(super) async fn page(State(admin): State<Admin>) -> Page {
    let report = ObservedReport::of(&ObservedView::of(&admin.observing));
    admin.framed(Place::Observed, "Observed", Ok(content(&report)))
}

fn content(report: &ObservedReport) -> Markup {
    html! {
        h1 { "Observed" }
        @if report.routes.is_empty() {
            p.empty { (report.head) }
        } @else {
            p { (report.head) " Nothing is held, refused or replayed on these routes while they are observed." }
        }
        @for (number, route) in report.routes.iter().enumerate() {
            section.card aria-labelledby={ "route-" (number) } {
                h2 id={ "route-" (number) } { (route.title) }
                ul { @for (line, examples) in &route.lines { li { (line) (newest(examples)) } } }
                p.dim { (route.ending) }
            }
        }
    }
}

/// The newest requests that a sentence counts.
fn newest(examples: &[String]) -> Markup {
    html! {
        @if !examples.is_empty() {
            details.examples { summary { "Newest" } ul { @for it in examples { li.long { (it) } } } }
        }
    }
}

impl Admin {
    /// How many routes are only observed now.
    pub(super) fn observed_routes(&self) -> usize {
        let routes = self.observing.routes();
        routes.iter().filter(|it| it.is_observed).count()
    }
}
