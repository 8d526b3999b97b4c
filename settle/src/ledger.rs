//! The service whose effects are counted, as a process of its own, in four kinds: one that stores its
//! answer in its own transaction, one that takes keys, one that can be asked, and one that can do
//! nothing of this.

mod book;
mod database;

use std::cell::RefCell;
use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;

use bytes::Bytes;
use clap::Args;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::json;

use self::book::Book;
pub(crate) use self::book::read;
use self::database::Database;
use crate::failure::Failure;
use crate::web::{Activity, json, serve};

/// Where it says how much goes on.
pub(crate) const ACTIVITY: &str = "/activity";
/// The header with the operation's id.
pub(crate) const OPERATION: &str = "onlyonce-operation";

/// The settings of a ledger.
#[derive(Args)]
pub(crate) struct Settings {
    #[arg(long)]
    listen: SocketAddr,
    /// The file of its effects
    #[arg(long)]
    book: PathBuf,
    /// The database of its effects, where they are in transactions
    #[arg(long)]
    database: Option<String>,
    /// A first attempt ends only after the next one has, if one comes
    #[arg(long)]
    late: bool,
}

/// What is asked for.
#[derive(Clone, Deserialize)]
pub(crate) struct Order {
    /// Whose effect it is: one for each boundary.
    pub(crate) reference: String,
    /// What is done: an order may be done in steps.
    pub(crate) what: String,
}

struct Ledger {
    book: RefCell<Book>,
    database: Option<Database>,
    /// Operations about which somebody has asked. The first one to ask gets no answer, so that every
    /// look up meets a timeout once.
    asked: RefCell<HashSet<String>>,
    activity: Activity,
}

/// Serves until it is killed, on one thread: an effect is one step of it.
pub(crate) async fn run(settings: &Settings) -> Result<(), Failure> {
    let activity = Activity::default();
    let database = settings.database.as_deref();
    let ledger = Rc::new(Ledger {
        book: RefCell::new(Book::open(&settings.book)?),
        database: database.map(|url| Database::new(url, settings.late)),
        asked: RefCell::default(),
        activity: activity.clone(),
    });
    let handler = move |request| Rc::clone(&ledger).answer(request);
    let served = serve(settings.listen, activity, handler).await;
    served.map(drop).map_err(Failure::doing("serve a ledger"))
}

impl Ledger {
    async fn answer(self: Rc<Self>, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path();
        if parts.method == Method::GET {
            return match path.strip_prefix("/charges/") {
                Some(operation) => self.look_up(operation).await,
                None => self.count(path),
            };
        }
        let body = body.collect().await.map(|body| body.to_bytes());
        let order = body
            .ok()
            .and_then(|body| serde_json::from_slice(&body).ok());
        let Some(order) = order else {
            return json(StatusCode::BAD_REQUEST, &json!({"error": "no order"}));
        };
        match path {
            "/transactional" => self.commit(&parts.headers, order).await,
            "/keyed" => self.charge(&parts.headers, &order, true),
            "/readable" | "/opaque" => self.charge(&parts.headers, &order, false),
            _ => json(StatusCode::NOT_FOUND, &json!({"error": "no such kind"})),
        }
    }

    /// One effect, in a file. There is no `await` in it: it is done with its connection or not at all.
    fn charge(
        &self,
        headers: &HeaderMap,
        order: &Order,
        takes_keys: bool,
    ) -> Response<Full<Bytes>> {
        let operation = text(
            headers,
            if takes_keys {
                "idempotency-key"
            } else {
                OPERATION
            },
        );
        match self.book.borrow_mut().charge(order, operation, takes_keys) {
            Ok(number) => done(number),
            Err(error) => failed(&error.to_string()),
        }
    }

    /// One effect, in a transaction that also stores the answer. It goes on when its client dies.
    async fn commit(self: Rc<Self>, headers: &HeaderMap, order: Order) -> Response<Full<Bytes>> {
        let asked = database::Asked {
            order,
            lease: text(headers, "onlyonce-lease").to_owned(),
            operation: text(headers, OPERATION).to_owned(),
            is_first: text(headers, "onlyonce-attempt") == "1",
        };
        let going = self.activity.begin();
        let committing = tokio::task::spawn_local(async move {
            let Some(database) = &self.database else {
                return Err("no database".to_owned());
            };
            let committed = database.commit(&asked).await;
            drop(going);
            committed.map_err(|error| error.to_string())
        });
        match committing.await {
            Ok(Ok(number)) => done(number),
            Ok(Err(error)) => failed(&error),
            Err(error) => failed(&error.to_string()),
        }
    }

    async fn look_up(&self, operation: &str) -> Response<Full<Bytes>> {
        if self.asked.borrow_mut().insert(operation.to_owned()) {
            // Until the one who asks has had enough.
            std::future::pending::<()>().await;
        }
        match self.book.borrow().find(operation) {
            Some(number) => done(number),
            None => json(StatusCode::NOT_FOUND, &json!({"error": "no such charge"})),
        }
    }

    /// How much goes on besides this request.
    fn count(&self, path: &str) -> Response<Full<Bytes>> {
        if path != ACTIVITY {
            return json(StatusCode::NOT_FOUND, &json!({"error": "nothing here"}));
        }
        json(StatusCode::OK, &json!(self.activity.count() - 1))
    }
}

fn done(number: u64) -> Response<Full<Bytes>> {
    json(StatusCode::CREATED, &json!({"charge": number}))
}

/// Nothing happened, or all of it was undone: a status that says so.
fn failed(why: &str) -> Response<Full<Bytes>> {
    json(StatusCode::SERVICE_UNAVAILABLE, &json!({"error": why}))
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    let value = headers.get(name).and_then(|value| value.to_str().ok());
    value.unwrap_or_default()
}
