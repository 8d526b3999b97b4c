//! The page of a form: plain HTML without a script. What the browser posts becomes a request of
//! the broker's API, so that a form sent twice is one submission.

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Path, Request, State};
use axum::http::header::{CONTENT_TYPE, COOKIE, SET_COOKIE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use serde_json::{Map, Value, json};
use tower::ServiceExt as _;

use super::{Form, Forms};
use crate::reply::Fault;
use crate::rules::{Kind, Rule};

const SESSION: &str = "demo_session";
/// As long as a submission is remembered.
const SESSION_SECONDS: u32 = 24 * 60 * 60;
const ANSWER_BYTES_MAX: usize = 64 * 1024;

#[derive(Clone)]
struct Pages {
    forms: Forms,
    /// The broker's API, with its idempotency layer.
    api: Router,
}

pub(super) fn router(forms: Forms, api: Router) -> Router {
    Router::new()
        .route("/forms/{form}", get(show).post(submit))
        .with_state(Pages { forms, api })
}

/// `GET /forms/{form}`: the form, for the session that a cookie names.
async fn show(
    State(pages): State<Pages>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Fault> {
    let form = pages.forms.find(&id)?;
    let known = session(&headers);
    let session = known.clone().unwrap_or_else(|| pages.forms.ids.uuid());
    let mut response = Html(form.page(&session)).into_response();
    if known.is_none() {
        let cookie = format!(
            "{SESSION}={session}; Path=/forms; Max-Age={SESSION_SECONDS}; HttpOnly; SameSite=Lax"
        );
        if let Ok(cookie) = HeaderValue::from_str(&cookie) {
            response.headers_mut().insert(SET_COOKIE, cookie);
        }
    }
    Ok(response)
}

/// `POST /forms/{form}`: what the browser sends, told to the API as JSON.
async fn submit(
    State(pages): State<Pages>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Fault> {
    let form = pages.forms.find(&id)?;
    let mut context_id = String::new();
    let mut form_data = Map::new();
    for (name, value) in form_urlencoded::parse(&body) {
        if name == "contextId" {
            context_id = value.into_owned();
        } else if let Some(value) = form.value(&name, &value) {
            form_data.insert(name.into_owned(), value);
        }
    }
    let told = json!({"contextId": context_id, "formData": form_data}).to_string();
    let mut request = Request::post(format!("/api/forms/{}/submit", form.id))
        .body(Body::from(told))
        .map_err(|_| Fault::not_found("there is no such form"))?;
    for (name, value) in &headers {
        if name != CONTENT_TYPE && name != axum::http::header::CONTENT_LENGTH {
            request.headers_mut().append(name, value.clone());
        }
    }
    let json = HeaderValue::from_static("application/json");
    request.headers_mut().insert(CONTENT_TYPE, json);
    let answer = match pages.api.oneshot(request).await {
        Ok(answer) => answer,
        Err(never) => match never {},
    };
    let status = answer.status();
    let bytes = to_bytes(answer.into_body(), ANSWER_BYTES_MAX)
        .await
        .unwrap_or_default();
    let answer = serde_json::from_slice(&bytes).unwrap_or_default();
    Ok((status, Html(form.outcome(status, &answer))).into_response())
}

fn session(headers: &HeaderMap) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_hexdigit() || c == '-';
    headers
        .get_all(COOKIE)
        .iter()
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(name, value)| *name == SESSION && value.chars().all(is_plain))
        .map(|(_, value)| value.to_owned())
}

impl Form {
    /// What a browser sent for a field, as the API takes it. A field that was left empty is not
    /// sent, unless it is plain text.
    fn value(&self, name: &str, sent: &str) -> Option<Value> {
        let Some(rule) = self.fields.get(name) else {
            return Some(Value::from(sent));
        };
        let is_plain = rule.kind == Kind::String && rule.one_of.is_none();
        if sent.is_empty() && !is_plain {
            return None;
        }
        Some(match rule.kind {
            Kind::String | Kind::Email => Value::from(sent),
            Kind::Boolean => Value::from(sent == "on"),
            // What is no number is refused by the API, in its words.
            Kind::Number => serde_json::from_str::<serde_json::Number>(sent)
                .map_or_else(|_| Value::from(sent), Value::from),
        })
    }

    fn page(&self, session: &str) -> String {
        let fields = self.fields.iter();
        let inputs: String = fields
            .map(|(name, rule)| {
                let label = escaped(rule.label.as_deref().unwrap_or(name));
                format!("<p><label>{label} {}</label></p>\n", input(name, rule))
            })
            .collect();
        let id = &self.id;
        page(
            &self.title,
            &format!(
                "<form method=\"post\" action=\"/forms/{id}\">\n\
                 <input type=\"hidden\" name=\"contextId\" value=\"{id}:{session}\">\n\
                 {inputs}<p><button id=\"submit\">Submit</button></p>\n</form>"
            ),
        )
    }

    fn outcome(&self, status: StatusCode, answer: &Value) -> String {
        let text = |value: &Value| escaped(value.as_str().unwrap_or_default());
        let said = if status.is_success() {
            format!(
                "<p id=\"message\">{}</p>\n<p>Record <code id=\"record\">{}</code></p>",
                text(&answer["message"]),
                text(&answer["recordId"]),
            )
        } else {
            let why = text(&answer["error"]["message"]);
            format!("<p id=\"message\">Not submitted: {why}</p>")
        };
        page(
            &self.title,
            &format!(
                "{said}\n<p><a href=\"/forms/{}\">Back to the form</a></p>",
                self.id
            ),
        )
    }
}

fn input(name: &str, rule: &Rule) -> String {
    let name = escaped(name);
    if let Some(allowed) = &rule.one_of {
        let option = |it: &String| format!("<option>{}</option>", escaped(it));
        let options: String = allowed.iter().map(option).collect();
        return format!("<select name=\"{name}\"><option></option>{options}</select>");
    }
    let kind = match rule.kind {
        Kind::String => "text",
        Kind::Email => "email",
        Kind::Number => "number",
        Kind::Boolean => "checkbox",
    };
    format!("<input type=\"{kind}\" name=\"{name}\">")
}

fn page(title: &str, content: &str) -> String {
    let title = escaped(title);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>{title}</title>\n\
         <h1>{title}</h1>\n{content}\n</html>\n"
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
