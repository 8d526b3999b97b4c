//! Keeps web pages of other origins out: the services trust every client on this machine, and a
//! browser is one, on behalf of any page that it shows.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use onlyonce::tower::{Foreign, KnownHosts};
use serde_json::json;

/// Lets through what asks for these services and does not come from another page.
pub(crate) async fn admitted(
    State(hosts): State<KnownHosts>,
    request: Request,
    next: Next,
) -> Response {
    match hosts.admit(&request) {
        Ok(()) => next.run(request).await,
        Err(foreign) => refused(&foreign),
    }
}

fn refused(foreign: &Foreign) -> Response {
    let (status, hint) = match foreign {
        Foreign::Host { .. } => (
            StatusCode::MISDIRECTED_REQUEST,
            "; ask for localhost, or start the demo with --host NAME",
        ),
        Foreign::CrossSite { .. } | _ => (StatusCode::FORBIDDEN, ""),
    };
    let problem = json!({
        "type": "about:blank",
        "title": status.canonical_reason(),
        "status": status.as_u16(),
        "detail": format!("{foreign}{hint}"),
    });
    let kind = [(CONTENT_TYPE, "application/problem+json")];
    (status, kind, problem.to_string()).into_response()
}
