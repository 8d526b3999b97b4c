//! The operators' console: pages that the binary itself serves, readable without a script. They show
//! what the API gives, and change what it changes, by its own functions. One style sheet and one
//! script come from here too; the policy of every page allows nothing else.

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use http::header::{CACHE_CONTROL, HeaderName, HeaderValue};

use super::Admin;
use super::guard;

mod assets;
mod callers;
mod confirm;
mod doubt;
mod fields;
mod health;
mod layout;
mod login;
mod now;
mod plot;
mod record;
mod records;
mod session;
mod words;

pub(super) use self::session::Sessions;

/// Nothing but our own style sheet, script, icon and API; no page may frame one of ours.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; \
                      connect-src 'self'; form-action 'self'; base-uri 'none'; \
                      frame-ancestors 'none'";

/// What every answer of the console carries. `same-origin` and not `no-referrer`: with that one a
/// browser hides the origin of our own forms too, and they would be refused.
const HEADERS: [(&str, &str); 6] = [
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
];

/// The pages, and the forms on them.
pub(super) fn router(admin: &Admin) -> Router<Admin> {
    let operators = Router::new()
        .route("/", get(now::page))
        .route("/records", get(records::page))
        .route("/records/find", get(to_records).post(records::find))
        .route("/records/{slot}", get(record::page))
        .route("/records/{slot}/forget", post(record::forget))
        .route("/records/{slot}/extend", post(record::extend))
        .route("/in-doubt", get(doubt::page))
        .route("/in-doubt/preview", get(to_doubt).post(confirm::preview))
        .route("/in-doubt/settle", get(to_doubt).post(confirm::settle))
        .route("/callers", get(callers::page))
        .route("/health", get(health::page))
        .route("/logout", post(login::logout))
        .route_layer(middleware::from_fn_with_state(admin.clone(), with_session));
    Router::new()
        .route("/login", get(login::page).post(login::login))
        .route("/console.css", get(assets::style))
        .route("/console.js", get(assets::script))
        .route("/console.svg", get(assets::icon))
        .merge(operators)
        .route_layer(middleware::from_fn(guard::as_own_form))
        .route_layer(middleware::map_response(sealed))
}

/// Who reloads or bookmarks what a form led to.
async fn to_doubt() -> Redirect {
    Redirect::to("/in-doubt")
}

async fn to_records() -> Redirect {
    Redirect::to("/records")
}

/// Lets an operator through; anybody else is asked for the token.
async fn with_session(State(admin): State<Admin>, request: Request, next: Next) -> Response {
    if admin.guard.is_operator(request.headers()) {
        return next.run(request).await;
    }
    let asked = request.uri().path_and_query().map(|it| it.as_str());
    let asked = asked.filter(|_| request.method().is_safe());
    Redirect::to(&login::address(asked.unwrap_or("/"))).into_response()
}

/// The answer under our policy, kept by nobody unless it says otherwise.
async fn sealed(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        let name = HeaderName::from_static(name);
        headers.insert(name, HeaderValue::from_static(value));
    }
    let kept = headers.entry(CACHE_CONTROL);
    kept.or_insert(HeaderValue::from_static("no-store"));
    response
}
