//! What every page has: its head, the way to the other pages, and the place where it says what went
//! wrong.

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use maud::{DOCTYPE, Markup, html};

use super::super::Admin;
use super::super::problem::Problem;
use super::assets;
use super::words::grouped;

/// What pages are.
pub(super) const HTML: &str = "text/html; charset=utf-8";

/// A page as it is sent.
pub(super) struct Page {
    status: StatusCode,
    markup: Markup,
}

impl Page {
    /// The same page with another status.
    pub(super) fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    /// Its text.
    pub(super) fn into_text(self) -> String {
        self.markup.into_string()
    }
}

/// The pages that each page leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Now,
    Records,
    InDoubt,
    Callers,
    Observed,
    Health,
}

impl Place {
    const ALL: [Self; 6] = [
        Self::Now,
        Self::Records,
        Self::InDoubt,
        Self::Callers,
        Self::Observed,
        Self::Health,
    ];

    const fn path(self) -> &'static str {
        match self {
            Self::Now => "/",
            Self::Records => "/records",
            Self::InDoubt => "/in-doubt",
            Self::Callers => "/callers",
            Self::Observed => "/observed",
            Self::Health => "/health",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Now => "Now",
            Self::Records => "Records",
            Self::InDoubt => "In doubt",
            Self::Callers => "Callers",
            Self::Observed => "Observed",
            Self::Health => "Health",
        }
    }
}

impl Admin {
    /// A page of the console, or one that says why it cannot be shown.
    pub(super) fn framed(
        &self,
        place: Place,
        title: &str,
        content: Result<Markup, Problem>,
    ) -> Page {
        let (status, content) = match content {
            Ok(content) => (StatusCode::OK, content),
            Err(problem) => (problem.status(), html! { h1 { (title) } (told(&problem)) }),
        };
        let body = html! {
            (self.header(Some(place)))
            main #main tabindex="-1" { (content) }
        };
        Page {
            status,
            markup: document(title, &body),
        }
    }

    /// A page for a visitor who has not logged in yet.
    pub(super) fn outside(&self, status: StatusCode, title: &str, content: &Markup) -> Page {
        let body = html! {
            (self.header(None))
            main #main.narrow tabindex="-1" { (content) }
        };
        Page {
            status,
            markup: document(title, &body),
        }
    }

    /// The way to the pages, for a visitor who has logged in.
    fn header(&self, place: Option<Place>) -> Markup {
        html! {
            header.top {
                a.brand href="/" { img src=(assets::address("console.svg")) alt="" width="24" height="24"; "onlyonce" }
                @if let Some(place) = place {
                    nav aria-label="Pages" { ul { @for it in Place::ALL { li { (self.way(it, place)) } } } }
                    span.instance { span.dim { "instance " } (self.engine.instance()) }
                    @if self.guard.asks_for_token() {
                        form.inline method="post" action="/logout" { button.quiet type="submit" { "Log out" } }
                    }
                }
            }
        }
    }

    fn way(&self, to: Place, here: Place) -> Markup {
        let current = (to == here).then_some("page");
        let in_doubt = self.observers.metrics().in_doubt();
        html! {
            a href=(to.path()) aria-current=[current] {
                (to.name())
                @if to == Place::InDoubt {
                    " " span.count data-now="in_doubt" hidden[in_doubt == 0] { (grouped(in_doubt)) }
                }
            }
        }
    }
}

/// A whole document.
fn document(title: &str, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · onlyonce" }
                link rel="icon" href=(assets::address("console.svg"));
                link rel="stylesheet" href=(assets::address("console.css"));
                script src=(assets::address("console.js")) defer {}
            }
            body {
                a.skip href="#main" { "Skip to the content" }
                (body)
                footer {
                    "onlyonce " (env!("CARGO_PKG_VERSION")) " · "
                    a href="/api/v1/openapi.json" { "API" } " · " a href="/metrics" { "metrics" }
                }
            }
        }
    }
}

/// Why a page cannot be shown, or a form not be taken.
pub(super) fn told(problem: &Problem) -> Markup {
    let heading = match problem.status() {
        StatusCode::SERVICE_UNAVAILABLE => "The store does not answer",
        StatusCode::NOT_FOUND => "Not found",
        StatusCode::BAD_REQUEST => "This cannot be done as it was asked for",
        StatusCode::CONFLICT => "Something else happened meanwhile",
        _ => "This did not work",
    };
    html! {
        div.notice.bad role="alert" {
            strong { (heading) }
            p { (problem.detail()) }
        }
    }
}

/// Something that went well.
pub(super) fn done(text: &str) -> Markup {
    html! { div.notice.good role="status" { p { (text) } } }
}

/// A table that can be scrolled by keyboard where it is wider than the screen.
pub(super) fn table(label: &str, head: &Markup, rows: &Markup) -> Markup {
    html! {
        div.scroll role="region" aria-label=(label) tabindex="0" {
            table { thead { tr { (head) } } tbody { (rows) } }
        }
    }
}

/// The heading of a column.
pub(super) fn column(name: &str) -> Markup {
    html! { th scope="col" { (name) } }
}

/// The heading of a column of numbers.
pub(super) fn number_column(name: &str) -> Markup {
    html! { th.number scope="col" { (name) } }
}

impl IntoResponse for Page {
    fn into_response(self) -> Response {
        (self.status, [(CONTENT_TYPE, HTML)], self.into_text()).into_response()
    }
}
