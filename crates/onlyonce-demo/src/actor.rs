//! Who asks. A bearer token of this service names its actor and says that for an hour; two tokens
//! of one actor are one caller, so that a refreshed token reaches the same records.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use onlyonce::core::{Entropy, OsEntropy};
use onlyonce::policy::Envelope;
use onlyonce::{Principal, Store, StoreError};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::ids::{Ids, now};
use crate::reply::Fault;

const ISSUER: &str = "onlyonce-demo";
const LIFE_SECONDS: u64 = 60 * 60;
const NAME_CHARS_MAX: usize = 100;

/// Who asks: `agent:agent_xyz`, or nobody in particular.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Actor(pub(crate) Option<Arc<str>>);

impl Actor {
    pub(crate) fn name(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

/// As the documents write an actor.
pub(crate) fn view(name: Option<&str>) -> Value {
    match name.map(|name| name.split_once(':').unwrap_or(("user", name))) {
        Some((kind, id)) => json!({"type": kind, "id": id}),
        None => json!({"type": "anonymous"}),
    }
}

impl<S: Sync> FromRequestParts<S> for Actor {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        let principal = parts.extensions.get::<Principal>();
        Ok(Self(principal.map(|principal| principal.name().into())))
    }
}

/// Makes tokens and reads them.
#[derive(Clone)]
pub(crate) struct Tokens {
    sign: Arc<EncodingKey>,
    verify: Arc<DecodingKey>,
    ids: Ids,
}

#[derive(Serialize, Deserialize)]
struct Claims {
    iss: String,
    sub: String,
    iat: u64,
    exp: u64,
    jti: String,
}

impl Tokens {
    /// With a secret that everyone on this store agrees on.
    pub(crate) async fn agree(store: &dyn Store, ids: Ids) -> Result<Self, StoreError> {
        let mut secret = vec![0; 32];
        OsEntropy::new().fill(&mut secret);
        if let Some(operate) = store.operate() {
            secret = operate.agree("demo token secret", &secret).await?;
        }
        Ok(Self {
            sign: Arc::new(EncodingKey::from_secret(&secret)),
            verify: Arc::new(DecodingKey::from_secret(&secret)),
            ids,
        })
    }

    fn sign(&self, sub: String) -> Result<String, jsonwebtoken::errors::Error> {
        let iat = now().as_millis() / 1000;
        let claims = Claims {
            iss: ISSUER.to_owned(),
            sub,
            iat,
            exp: iat + LIFE_SECONDS,
            jti: self.ids.make("tok_"),
        };
        jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &self.sign)
    }

    /// The actor that a request's token names; an error if it has a token that names none.
    fn read(&self, headers: &HeaderMap) -> Result<Option<String>, Fault> {
        let mut lines = headers.get_all(AUTHORIZATION).iter();
        let Some(line) = lines.next() else {
            return Ok(None);
        };
        let mut validation = Validation::new(Algorithm::HS256);
        validation.set_issuer(&[ISSUER]);
        let token = line
            .to_str()
            .ok()
            .filter(|_| lines.next().is_none())
            .and_then(|line| line.strip_prefix("Bearer "));
        let read = token.and_then(|token| {
            jsonwebtoken::decode::<Claims>(token, &self.verify, &validation).ok()
        });
        match read {
            Some(read) => Ok(Some(read.claims.sub)),
            None => Err(unauthorized(
                "the bearer token is not one of POST /api/v1/tokens, or has expired",
            )),
        }
    }
}

fn unauthorized(why: &str) -> Fault {
    Fault::no(StatusCode::UNAUTHORIZED, "unauthorized", why).passing()
}

/// Finds out who asks, before the idempotency layers: they keep callers apart by it.
pub(crate) async fn identify(
    State(tokens): State<Tokens>,
    mut request: Request,
    next: Next,
) -> Response {
    match tokens.read(request.headers()) {
        Ok(Some(name)) => {
            request.extensions_mut().insert(Principal::new(name));
        }
        Ok(None) => {}
        Err(fault) => return fault.worded(Envelope::CodeError),
    }
    next.run(request).await
}

/// Lets only known actors pass.
pub(crate) async fn known(actor: Actor, request: Request, next: Next) -> Response {
    match actor.name() {
        Some(_) => next.run(request).await,
        None => {
            let why = "send a token: Authorization: Bearer TOKEN, from POST /api/v1/tokens";
            unauthorized(why).worded(Envelope::CodeError)
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {
    id: String,
    #[serde(rename = "type", default = "user")]
    kind: String,
}

fn user() -> String {
    "user".to_owned()
}

/// `POST /api/v1/tokens`: a token for whoever one says one is. A real service asks for a password.
pub(crate) async fn issue(State(tokens): State<Tokens>, Json(asked): Json<Asked>) -> Response {
    let is_name = |text: &str| {
        let chars = text.chars().count();
        (1..=NAME_CHARS_MAX).contains(&chars) && !text.chars().any(|c| c == ':' || c.is_control())
    };
    if !is_name(&asked.id) || !is_name(&asked.kind) {
        let why = "id and type are names of 1 to 100 characters without a colon";
        let fault = Fault::no(StatusCode::UNPROCESSABLE_ENTITY, "validation_error", why);
        return fault.worded(Envelope::CodeError);
    }
    match tokens.sign(format!("{}:{}", asked.kind, asked.id)) {
        Ok(token) => Json(json!({"token": token})).into_response(),
        Err(error) => {
            tracing::error!(target: "onlyonce_demo", %error, "a token could not be signed");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}
