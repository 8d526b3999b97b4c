//! The operators' console: pages that the binary itself serves, readable without a script. They show
//! what the API gives, and change what it changes, by its own functions. One style sheet and one
//! script come from here too; the policy of every page allows nothing else.

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use http::header::{CONTENT_SECURITY_POLICY, HeaderValue};

use super::Admin;
use super::extract::Path;
use super::guard;
use super::records::slot;

mod assets;
mod callers;
mod confirm;
mod doubt;
mod fields;
mod health;
mod layout;
mod login;
mod now;
mod observed;
mod plot;
mod record;
mod records;
mod session;
mod soon;
mod words;

pub(super) use self::session::Sessions;
pub(super) use self::words::{grouped, to_second};

/// Nothing but our own style sheet, script, icon and API; no page may frame one of ours.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; \
                      connect-src 'self'; form-action 'self'; base-uri 'none'; \
                      frame-ancestors 'none'";

/// The pages, and the forms on them.
pub(super) fn router(admin: &Admin) -> Router<Admin> {
    let operators = Router::new()
        .route("/", get(now::page))
        .route("/records", get(records::page))
        .route("/records/find", get(to_records).post(records::find))
        .route("/records/{slot}", get(record::page))
        .route(
            "/records/{slot}/forget",
            get(to_record).post(record::forget),
        )
        .route(
            "/records/{slot}/extend",
            get(to_record).post(record::extend),
        )
        .route("/in-doubt", get(doubt::page))
        .route("/in-doubt/preview", get(to_doubt).post(confirm::preview))
        .route("/in-doubt/settle", get(to_doubt).post(confirm::settle))
        .route("/callers", get(callers::page))
        .route("/observed", get(observed::page))
        .route("/health", get(health::page))
        .route("/logout", get(to_now).post(login::logout))
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

async fn to_record(Path(address): Path<String>) -> Redirect {
    match slot(&address) {
        Ok(slot) => Redirect::to(&words::record_address(&slot.to_string())),
        Err(_) => Redirect::to("/records"),
    }
}

async fn to_now() -> Redirect {
    Redirect::to("/")
}

/// Lets an operator through; anybody else is asked for the token.
async fn with_session(State(admin): State<Admin>, request: Request, next: Next) -> Response {
    if admin.guard.is_operator(&request) {
        return next.run(request).await;
    }
    let asked = request.uri().path_and_query().map(|it| it.as_str());
    let asked = asked.filter(|_| request.method().is_safe());
    Redirect::to(&login::address(asked.unwrap_or("/"))).into_response()
}

/// The answer under the policy of our pages.
async fn sealed(mut response: Response) -> Response {
    let policy = HeaderValue::from_static(POLICY);
    response
        .headers_mut()
        .insert(CONTENT_SECURITY_POLICY, policy);
    response
}
