//! A client with a key: it asks until the answer is final, and so does an operator for it.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::failure::Failure;
use crate::judge::{Ending, Hold};
use crate::plan::Kind;
use crate::web::send;

/// How long one attempt may take.
const ATTEMPT_MAX: Duration = Duration::from_secs(20);
/// How long the client asks in all. Far more than it takes.
const ASK_MAX: Duration = Duration::from_secs(90);
const RETRY_EVERY: Duration = Duration::from_millis(100);
/// What an operator says about an outcome that is held.
const SAID: &str = r#"{"charge":"said by an operator"}"#;

/// One operation of a client.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) kind: Kind,
    /// The key, and the reference of its effects.
    pub(crate) key: String,
}

/// What one attempt came to.
enum Heard {
    Final(Ending),
    Nothing(String),
}

impl Client {
    /// One attempt, whatever comes of it.
    pub(crate) async fn attempt(&self, to: SocketAddr) {
        drop(self.ask(to).await);
    }

    /// Asks every front in turn until the answer is final.
    pub(crate) async fn settle(&self, fronts: &[SocketAddr]) -> Result<Ending, Failure> {
        let until = Instant::now() + ASK_MAX;
        let mut last = "nothing".to_owned();
        for front in fronts.iter().cycle() {
            match self.ask(*front).await? {
                Heard::Final(ending) => return Ok(ending),
                Heard::Nothing(heard) => last = heard,
            }
            if Instant::now() > until {
                break;
            }
            sleep(RETRY_EVERY).await;
        }
        Ok(Ending::Unsettled(last))
    }

    async fn ask(&self, to: SocketAddr) -> Result<Heard, Failure> {
        let body = json!({"reference": self.key, "what": "charge"}).to_string();
        let request = Request::post(self.kind.path())
            .header("idempotency-key", &self.key)
            .header("authorization", "Bearer a-client")
            .header("content-type", "application/json")
            .body(Full::from(body))
            .map_err(Failure::doing("make a request"))?;
        Ok(match send(to, request, ATTEMPT_MAX).await {
            Ok(answer) => heard(&answer),
            Err(error) => Heard::Nothing(error.to_string()),
        })
    }

    /// Finds what is held by the operators' way, settles it, and asks again.
    pub(crate) async fn resolve(
        &self,
        admin: SocketAddr,
        fronts: &[SocketAddr],
    ) -> Result<Hold, Failure> {
        let listed = operate(admin, "GET", "/api/v1/records/in-doubt", None).await?;
        // What earlier operations left was resolved.
        let records = listed["records"].as_array().map(Vec::as_slice);
        let Some([record]) = records else {
            return Ok(Hold::default());
        };
        let slot = record["slot"].as_str().unwrap_or_default();
        let path = format!("/api/v1/records/{slot}/resolve");
        let answer = json!({"status": 200, "body": SAID, "reason": "looked at the ledger"});
        operate(admin, "POST", &path, Some(&answer)).await?;
        let said = serde_json::from_str(SAID).map(Ending::Answered).ok();
        Ok(Hold {
            is_listed: true,
            is_resolved: Some(self.settle(fronts).await?) == said,
        })
    }
}

/// What an answer means to a client that only has its key.
fn heard(answer: &Response<Bytes>) -> Heard {
    let body: Value = serde_json::from_slice(answer.body()).unwrap_or_default();
    let status = answer.status();
    if status.is_success() {
        return Heard::Final(Ending::Answered(body));
    }
    if status == StatusCode::CONFLICT && body["retryable"] == false {
        return Heard::Final(Ending::Held);
    }
    Heard::Nothing(format!("{status} {body}"))
}

async fn operate(
    admin: SocketAddr,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> Result<Value, Failure> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", admin.to_string())
        .header("content-type", "application/json")
        .body(Full::from(body.map(Value::to_string).unwrap_or_default()))
        .map_err(Failure::doing("make a request"))?;
    let answer = send(admin, request, ATTEMPT_MAX).await;
    let answer = answer.map_err(Failure::doing(format!("{method} {path}")))?;
    Ok(serde_json::from_slice(answer.body()).unwrap_or_default())
}
