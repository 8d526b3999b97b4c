//! Services that make one thing a request: users, rooms and devices of an offline client, told
//! apart by who syncs them; orders; and charges of a service that knows nothing of keys.

use axum::Extension;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::post;
use onlyonce::policy::Envelope;
use onlyonce::{Execution, Policy};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::actor::{Actor, known};
use crate::db::Db;
use crate::ids::{Ids, column, now, shown};
use crate::once::Once;
use crate::outbox::Outbox;
use crate::reply::{Fault, Reply, word};

/// What a service makes.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    /// What its ids begin with.
    prefix: &'static str,
    /// The field it cannot do without.
    needs: &'static str,
    /// Whether its requests may be `{meta, payload}`, and its answers are.
    enveloped: bool,
}

const SYNCED: [(&str, Kind); 3] = [
    ("/api/v1/users", Kind::synced("user", "usr_", "email")),
    ("/api/v1/rooms", Kind::synced("room", "room_", "name")),
    ("/api/v1/devices", Kind::synced("device", "dev_", "serial")),
];
/// What a sync client calls the operation on this route, if it is one of its routes (D3 has
/// `createUser` and `createRoom`).
pub(crate) fn sync_operation(route: &str) -> Option<&'static str> {
    match route {
        "/api/v1/users" => Some("createUser"),
        "/api/v1/rooms" => Some("createRoom"),
        "/api/v1/devices" => Some("registerDevice"),
        _ => None,
    }
}

const ORDER: Kind = Kind::plain("order", "ord_", "item");
const CHARGE: Kind = Kind::plain("charge", "ch_", "cents");

impl Kind {
    const fn synced(name: &'static str, prefix: &'static str, needs: &'static str) -> Self {
        Self {
            name,
            prefix,
            needs,
            enveloped: true,
        }
    }

    const fn plain(name: &'static str, prefix: &'static str, needs: &'static str) -> Self {
        Self {
            name,
            prefix,
            needs,
            enveloped: false,
        }
    }
}

/// What the services share.
#[derive(Clone)]
pub(crate) struct Shop {
    pub(crate) db: Db,
    pub(crate) ids: Ids,
    pub(crate) outbox: Outbox,
    /// Where a new user's welcome mail is asked for: a job of its own, not part of the request.
    pub(crate) mail: Option<String>,
}

#[derive(Clone)]
struct Desk {
    shop: Shop,
    kind: Kind,
}

/// `/api/v1/users`, `rooms` and `devices`: for known actors only.
pub(crate) fn synced(shop: &Shop, once: &Once, policy: &Policy) -> Router {
    let mut router = Router::new();
    for (path, kind) in SYNCED {
        router = router.merge(one(path, shop, kind, policy.http.envelope));
    }
    once.around(router, policy.clone()).layer(from_fn(known))
}

/// `/api/orders`
pub(crate) fn orders(shop: &Shop, once: &Once, policy: &Policy) -> Router {
    let service = one("/api/orders", shop, ORDER, policy.http.envelope);
    once.around(service, policy.clone())
}

/// `/legacy/charges`: without any protection of its own.
pub(crate) fn charges(shop: &Shop) -> Router {
    one("/legacy/charges", shop, CHARGE, Envelope::Problem)
}

fn one(path: &str, shop: &Shop, kind: Kind, envelope: Envelope) -> Router {
    let shop = shop.clone();
    Router::new()
        .route(path, post(create).get(list))
        .layer(from_fn_with_state(envelope, word))
        .with_state(Desk { shop, kind })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Enveloped {
    meta: Map<String, Value>,
    payload: Map<String, Value>,
}

impl Desk {
    /// The payload, with or without its envelope: D3's example has one, its load test has none.
    fn read(&self, body: &[u8]) -> Result<Map<String, Value>, Fault> {
        let bad = |error: serde_json::Error| {
            let shape = if self.kind.enveloped {
                "{\"meta\": {…}, \"payload\": {…}}, or the payload alone"
            } else {
                "a JSON object"
            };
            let why = format!("the body must be {shape}: {error}");
            Fault::no(StatusCode::BAD_REQUEST, "invalid_request", why)
        };
        let sent: Map<String, Value> = serde_json::from_slice(body).map_err(bad)?;
        let is_in_envelope = sent.contains_key("meta") || sent.contains_key("payload");
        let payload = if self.kind.enveloped && is_in_envelope {
            let Enveloped { meta, payload } = serde_json::from_value(sent.into()).map_err(bad)?;
            drop(meta);
            payload
        } else {
            sent
        };
        let needed = payload.get(self.kind.needs);
        if needed.is_none_or(|it| it.is_null() || it == "") {
            let why = format!("a {} needs `{}`", self.kind.name, self.kind.needs);
            let status = StatusCode::UNPROCESSABLE_ENTITY;
            return Err(Fault::no(status, "validation_error", why));
        }
        Ok(payload)
    }

    fn view(&self, id: &str, payload: Map<String, Value>) -> Map<String, Value> {
        let mut view = payload;
        view.insert(format!("{}_id", self.kind.name), Value::from(id));
        view
    }
}

async fn create(
    State(desk): State<Desk>,
    actor: Actor,
    keyed: Option<Extension<Execution>>,
    body: Bytes,
) -> Result<Reply, Fault> {
    const INSERT: &str =
        "INSERT INTO resources (id, kind, owner, payload, at) VALUES ($1, $2, $3, $4, $5)";
    let payload = desk.read(&body)?;
    let Desk { shop, kind } = &desk;
    let keyed = keyed.as_ref().map(|Extension(execution)| execution);
    let mut work = shop.db.work(keyed).await?;
    let (id, at) = (shop.ids.make(kind.prefix), column(now()));
    let text = Value::from(payload.clone()).to_string();
    let args = [
        (&id).into(),
        kind.name.into(),
        actor.name().into(),
        (&text).into(),
        at.into(),
    ];
    work.run(INSERT, &args).await?;
    if let Some(mail) = shop.mail.as_ref().filter(|_| kind.name == "user") {
        let told = json!({"event": "user.created", "userId": id, "email": payload.get("email")});
        shop.outbox.put(&mut work, mail, &told, at).await?;
    }
    let view = desk.view(&id, payload);
    let said = if kind.enveloped {
        json!({"meta": {"created_at": shown(at)}, "payload": view})
    } else {
        Value::from(view)
    };
    let reply = Reply::new(StatusCode::CREATED, said).made(&id);
    let reply = work.finish(reply).await?;
    shop.outbox.wake();
    Ok(reply)
}

/// What this actor has: how many, and the newest.
async fn list(State(desk): State<Desk>, actor: Actor) -> Result<Reply, Fault> {
    // An absent owner is the empty one here: `=` is never true of NULL.
    const COUNT: &str =
        "SELECT COUNT(*) FROM resources WHERE kind = $1 AND COALESCE(owner, '') = $2";
    const NEWEST: &str = "SELECT id, payload FROM resources \
        WHERE kind = $1 AND COALESCE(owner, '') = $2 ORDER BY at DESC LIMIT 20";
    let args = [
        desk.kind.name.into(),
        actor.name().unwrap_or_default().into(),
    ];
    let count: Vec<(i64,)> = desk.shop.db.all(COUNT, &args).await?;
    let newest: Vec<(String, String)> = desk.shop.db.all(NEWEST, &args).await?;
    let newest: Vec<_> = newest
        .into_iter()
        .map(|(id, payload)| desk.view(&id, serde_json::from_str(&payload).unwrap_or_default()))
        .collect();
    let count = count.first().map_or(0, |(count,)| *count);
    Ok(Reply::ok(
        json!({"meta": {"count": count}, "payload": newest}),
    ))
}
