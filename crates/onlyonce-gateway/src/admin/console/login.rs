//! The token is given once, in a form; from then on the browser holds a session.

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Redirect, Response};
use form_urlencoded::Serializer;
use http::header::{HeaderMap, HeaderValue, ORIGIN, RETRY_AFTER, SET_COOKIE, WWW_AUTHENTICATE};
use http::{StatusCode, Uri};
use maud::html;

use super::super::tries::{Tried, WINDOW};
use super::super::{Admin, Peer};
use super::fields::{Asked, Sent};
use super::layout::Page;

const PATH: &str = "/login";
const WRONG: &str = "This is not the admin token of this gateway.";
const TOO_MANY: &str =
    "Too many tokens were tried from this address. Wait a minute, then try again.";

/// The address of the form, which leads back to `next`.
pub(super) fn address(next: &str) -> String {
    if next == "/" {
        return PATH.to_owned();
    }
    let query = Serializer::new(String::new())
        .append_pair("next", next)
        .finish();
    format!("{PATH}?{query}")
}

pub(super) async fn page(
    State(admin): State<Admin>,
    Asked(fields): Asked,
    request: Request,
) -> Response {
    let next = local(fields.text("next"));
    if admin.guard.is_operator(&request) {
        return Redirect::to(&next).into_response();
    }
    form(&admin, StatusCode::OK, &next, None).into_response()
}

pub(super) async fn login(
    State(admin): State<Admin>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
    Sent(fields): Sent,
) -> Response {
    let next = local(fields.text("next"));
    if !admin.guard.asks_for_token() {
        return Redirect::to(&next).into_response();
    }
    let sent = fields.text("token").unwrap_or_default();
    let from = peer.map(|Extension(Peer(address))| address);
    match admin.guard.typed(sent, from) {
        Tried::Right => {
            let cookie = admin.guard.sessions().open(is_secure(&headers));
            with_cookie(&cookie, Redirect::to(&next))
        }
        Tried::Wrong => {
            let page = form(&admin, StatusCode::UNAUTHORIZED, &next, Some(WRONG));
            ([(WWW_AUTHENTICATE, "Bearer")], page).into_response()
        }
        Tried::TooMany => {
            let page = form(&admin, StatusCode::TOO_MANY_REQUESTS, &next, Some(TOO_MANY));
            ([(RETRY_AFTER, WINDOW.as_secs())], page).into_response()
        }
    }
}

pub(super) async fn logout(State(admin): State<Admin>, headers: HeaderMap) -> Response {
    let cookie = admin.guard.sessions().close(&headers);
    with_cookie(&cookie, Redirect::to(PATH))
}

fn form(admin: &Admin, status: StatusCode, next: &str, wrong: Option<&str>) -> Page {
    let content = html! {
        h1 { "Log in" }
        @if let Some(wrong) = wrong {
            div.notice.bad role="alert" #wrong { p { (wrong) } }
        }
        form.card method="post" action=(PATH) {
            input type="hidden" name="next" value=(next);
            label for="token" { "Admin token" }
            input #token type="password" name="token" required autofocus autocomplete="current-password"
                aria-invalid=[wrong.map(|_| "true")] aria-describedby=[wrong.map(|_| "wrong")];
            p.dim { "The content of the file that " code { "admin_token_file" } " names." }
            button type="submit" { "Log in" }
        }
        p.dim { "You are logged in already? " a href=(next) { "Continue" } "." }
    };
    admin.outside(status, "Log in", &content)
}

fn with_cookie(cookie: &str, answer: Redirect) -> Response {
    let mut response = answer.into_response();
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
    response
}

/// Where a login leads: a path of ours, and nowhere else.
fn local(next: Option<&str>) -> String {
    let is_local = |next: &&str| {
        let rest = next.strip_prefix('/');
        let is_path = rest.is_some_and(|rest| !rest.starts_with(['/', '\\']));
        is_path && next.bytes().all(|it| it.is_ascii_graphic() && it != b'\\')
    };
    let next = next.filter(is_local).filter(|next| {
        let uri = next.parse::<Uri>();
        uri.is_ok_and(|uri| uri.authority().is_none())
    });
    next.unwrap_or("/").to_owned()
}

/// Whether the browser came by https, through a proxy that ends it.
fn is_secure(headers: &HeaderMap) -> bool {
    let origin = headers.get(ORIGIN).map(HeaderValue::as_bytes);
    origin.is_some_and(|origin| origin.starts_with(b"https://"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_leads_to_a_path_of_ours_and_nowhere_else() {
        for next in ["/", "/records?state=done", "/records/ab"] {
            assert_eq!(local(Some(next)), next);
        }
        for next in [
            "",
            "records",
            "//evil.example",
            "/\\evil.example",
            "/\t/evil.example",
            "http://evil.example",
            "/a\r\nx: y",
            "/é",
        ] {
            assert_eq!(local(Some(next)), "/", "{next}");
        }
        assert_eq!(local(None), "/");
    }
}
