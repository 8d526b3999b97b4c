//! A server that is none of ours: the `standard` promises once more, written plainly, with at most
//! one flaw.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, DATE, LOCATION, SET_COOKIE};
use axum::http::{HeaderMap, Method, Response, request};
use bytes::Bytes;
use onlyonce_core::{Clock, SystemClock};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::ours::{SLOW, answer};
use super::serve;

/// What this server gets wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    None,
    IgnoresKeys,
    KnowsOneKeyOnly,
    ReplaysCookies,
    ReplaysDate,
    ReplaysConnectionHeaders,
    LosesLocation,
    StoresAfterAnswering,
    IgnoresPayloads,
    IgnoresQueries,
    ComparesJsonAsWritten,
    StoresText,
    ComparesText,
    GivesUpWithItsClient,
    FoldsCase,
    SharesCallers,
    TakesTheFirstKey,
    TakesEmptyKeys,
    TakesLongKeys,
    TakesAnyCharacter,
    TakesQuotesAsPartOfTheKey,
    NeedsKeys,
    LooksAtKeysOfGet,
    ForgetsMarks,
    SpeaksPlainText,
    RefusesDuplicates,
    ComparesOnlyWhenDone,
    SkipsEmptyBodies,
    SkipsLargeBodies,
}

const KEY_BYTES_MAX: usize = 255;
const LARGE_BYTES: usize = 256 * 1024;
const REQUEST_BYTES_MAX: usize = 4 * 1024 * 1024;
const EXPIRES: &str = "2099-01-01T00:00:00Z";

#[derive(Clone)]
struct Server {
    flaw: Flaw,
    orders: Arc<AtomicU64>,
    records: Arc<Mutex<BTreeMap<String, Arc<Record>>>>,
}

struct Record {
    meaning: (String, Meaning),
    answer: OnceCell<Stored>,
}

#[derive(PartialEq)]
enum Meaning {
    Json(Value),
    Bytes(Bytes),
}

#[derive(Clone)]
struct Stored {
    status: u16,
    headers: HeaderMap,
    body: Bytes,
}

pub(crate) async fn start(flaw: Flaw) -> String {
    let server = Server {
        flaw,
        orders: Arc::default(),
        records: Arc::default(),
    };
    serve(Router::new().fallback(handle).with_state(server)).await
}

async fn handle(State(server): State<Server>, request: Request) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, REQUEST_BYTES_MAX).await.unwrap();
    if parts.method == Method::GET && server.flaw != Flaw::LooksAtKeysOfGet {
        return Response::new(Body::from("orders"));
    }
    let key = match server.key(&parts.headers) {
        Ok(Some(key)) => key,
        Ok(None) if server.flaw != Flaw::NeedsKeys => {
            return server.run(&parts, &body).await.fresh();
        }
        Ok(None) => return server.refuse(400, "no key"),
        Err(why) => return server.refuse(400, why),
    };
    let skips = server.flaw == Flaw::IgnoresKeys
        || server.flaw == Flaw::SkipsEmptyBodies && body.is_empty()
        || server.flaw == Flaw::SkipsLargeBodies && body.len() > LARGE_BYTES;
    if skips {
        return server.run(&parts, &body).await.fresh();
    }
    server.keyed(key, parts, body).await
}

impl Server {
    fn key(&self, headers: &HeaderMap) -> Result<Option<String>, &'static str> {
        let lines: Vec<_> = headers.get_all("idempotency-key").iter().collect();
        let line = match lines[..] {
            [] => return Ok(None),
            [line] => line,
            [line, ..] if self.flaw == Flaw::TakesTheFirstKey => line,
            [_, ..] => return Err("more than one key"),
        };
        let mut key = String::from_utf8(line.as_bytes().to_vec()).map_err(|_| "no text")?;
        if key.starts_with('"') && self.flaw != Flaw::TakesQuotesAsPartOfTheKey {
            let inner = key[1..]
                .strip_suffix('"')
                .ok_or("a quote that never closes")?;
            key = inner.to_owned();
        }
        if key.is_empty() && self.flaw != Flaw::TakesEmptyKeys {
            return Err("an empty key");
        }
        if key.len() > KEY_BYTES_MAX && self.flaw != Flaw::TakesLongKeys {
            return Err("a long key");
        }
        let is_visible = key.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_visible && self.flaw != Flaw::TakesAnyCharacter {
            return Err("a strange character");
        }
        Ok(Some(key))
    }

    fn slot(&self, key: &str, parts: &request::Parts) -> String {
        let caller = parts.headers.get(AUTHORIZATION);
        let caller = caller.filter(|_| self.flaw != Flaw::SharesCallers);
        let key = if self.flaw == Flaw::FoldsCase {
            key.to_lowercase()
        } else if self.flaw == Flaw::KnowsOneKeyOnly {
            String::new()
        } else {
            key.to_owned()
        };
        format!("{key} {caller:?} {}", parts.uri.path())
    }

    fn meaning(&self, parts: &request::Parts, body: &Bytes) -> (String, Meaning) {
        let target = if self.flaw == Flaw::IgnoresQueries {
            parts.uri.path().to_owned()
        } else {
            parts.uri.to_string()
        };
        let target = format!("{} {target}", parts.method);
        let body = match serde_json::from_slice(body) {
            _ if self.flaw == Flaw::IgnoresPayloads => Meaning::Bytes(Bytes::new()),
            Ok(value) if self.flaw != Flaw::ComparesJsonAsWritten => Meaning::Json(value),
            _ if self.flaw == Flaw::ComparesText => {
                Meaning::Bytes(String::from_utf8_lossy(body).into_owned().into())
            }
            _ => Meaning::Bytes(body.clone()),
        };
        (target, body)
    }

    async fn keyed(self, key: String, parts: request::Parts, body: Bytes) -> Response<Body> {
        let slot = self.slot(&key, &parts);
        let echo = parts.headers["idempotency-key"].clone();
        let (record, is_first) = self.claim(&slot, &parts, &body);
        let meaning = self.meaning(&parts, &body);
        if record.meaning != meaning {
            if self.flaw == Flaw::ComparesOnlyWhenDone {
                while record.answer.get().is_none() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
            return self.refuse(422, "the key was used for something else");
        }
        if self.flaw == Flaw::RefusesDuplicates && !is_first && record.answer.get().is_none() {
            let mut refusal = self.refuse(409, "it runs");
            refusal.headers_mut().insert("retry-after", 0.into());
            return refusal;
        }
        let stored = if self.flaw == Flaw::GivesUpWithItsClient {
            record
                .answer
                .get_or_init(|| self.run(&parts, &body))
                .await
                .clone()
        } else {
            let server = self.clone();
            let running = tokio::spawn(async move {
                let running = || server.run(&parts, &body);
                record.answer.get_or_init(running).await.clone()
            });
            running.await.unwrap()
        };
        let mut response = if is_first {
            stored.fresh()
        } else {
            stored.replayed(self.flaw)
        };
        if self.flaw != Flaw::ForgetsMarks {
            let headers = response.headers_mut();
            headers.insert("idempotency-key", echo);
            headers.insert("idempotency-expires", EXPIRES.parse().unwrap());
        }
        response
    }

    /// The slot's record, and whether it is new.
    fn claim(&self, slot: &str, parts: &request::Parts, body: &Bytes) -> (Arc<Record>, bool) {
        let mut records = self.records.lock().unwrap();
        let found = records.get(slot).cloned();
        let is_usable = |record: &Arc<Record>| {
            self.flaw != Flaw::StoresAfterAnswering || record.answer.get().is_some()
        };
        if let Some(record) = found.filter(is_usable) {
            // A caller that hung up before anything was made leaves a record without an answer.
            let is_orphan = self.flaw == Flaw::GivesUpWithItsClient
                && Arc::strong_count(&record) == 2
                && record.answer.get().is_none();
            return (record, is_orphan);
        }
        let record = Arc::new(Record {
            meaning: self.meaning(parts, body),
            answer: OnceCell::new(),
        });
        records.insert(slot.to_owned(), Arc::clone(&record));
        (record, true)
    }

    async fn run(&self, parts: &request::Parts, body: &Bytes) -> Stored {
        if parts.uri.path() == "/slow" {
            tokio::time::sleep(SLOW).await;
        }
        let (mut made, body) = answer(&self.orders, &parts.headers, body).into_parts();
        // Not how a date is written, but all that matters here is whether it comes again.
        let now = SystemClock::new().wall().to_rfc3339();
        made.headers.insert(DATE, now.parse().unwrap());
        Stored {
            status: made.status.as_u16(),
            headers: made.headers,
            body: to_bytes(body, REQUEST_BYTES_MAX).await.unwrap(),
        }
    }

    fn refuse(&self, status: u16, why: &str) -> Response<Body> {
        let response = Response::builder().status(status);
        if self.flaw == Flaw::SpeaksPlainText {
            return response.body(Body::from(why.to_owned())).unwrap();
        }
        let problem = json!({"title": why, "status": status});
        response
            .header(CONTENT_TYPE, "application/problem+json")
            .body(Body::from(problem.to_string()))
            .unwrap()
    }
}

impl Stored {
    fn fresh(self) -> Response<Body> {
        let mut response = Response::new(Body::from(self.body));
        *response.status_mut() = self.status.try_into().unwrap();
        *response.headers_mut() = self.headers;
        response
    }

    fn replayed(mut self, flaw: Flaw) -> Response<Body> {
        for (name, kept_by) in [
            (SET_COOKIE, Flaw::ReplaysCookies),
            (DATE, Flaw::ReplaysDate),
            (
                "keep-alive".parse().unwrap(),
                Flaw::ReplaysConnectionHeaders,
            ),
        ] {
            if flaw != kept_by {
                self.headers.remove(name);
            }
        }
        if flaw == Flaw::LosesLocation {
            self.headers.remove(LOCATION);
        }
        if flaw == Flaw::StoresText {
            self.body = String::from_utf8_lossy(&self.body).into_owned().into();
        }
        if flaw != Flaw::ForgetsMarks {
            let flag = "true".parse().unwrap();
            self.headers.insert("idempotent-replayed", flag);
        }
        self.fresh()
    }
}
