//! Sends an operation under its key, again and again if that can help: always with the same key,
//! never when the service has said no.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, Request, Uri};
use onlyonce_core::{Clock, Entropy, Key, OsEntropy, SystemClock};
use tokio::time::{sleep, timeout};
use tower::retry::budget::{Budget as _, TpsBudget};

use crate::ask::StatusPath;
use crate::cause::{Cause, Failure};
use crate::counters::{Counters, Counts, add};
use crate::evidence::Evidence;
use crate::keys::key_header;
use crate::operation::{Operation, OperationError};
use crate::redirect::{REDIRECTS_MAX, same_request_elsewhere};
use crate::reply::Reply;
use crate::retry::Retry;
use crate::transport::{Transport, TransportError};

pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Retries that all operations of a sender share: so many a second, and this part of the
/// operations of the last seconds. A service that is down does not get a storm on top.
const BUDGET_WINDOW: Duration = Duration::from_secs(10);
const BUDGET_RETRIES_PER_SECOND: u32 = 10;
const BUDGET_PART: f32 = 0.2;

/// Sends operations. Clones share their counters and their budget of retries.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use onlyonce_client::{Cause, Http, Keys, Operation, Sender};
///
/// let sender = Sender::new(Http::new()?);
/// let key = Keys::default().v4();
/// # let address = "http://127.0.0.1:9/users";
/// # let sender = sender.retry(onlyonce_client::Retry { attempts_max: 1, ..Default::default() });
/// let operation = Operation::post(address)?.json(&serde_json::json!({"name": "Ada"}))?;
/// match sender.send(&operation, &key).await {
///     Ok(sent) => println!("{} {}", sent.reply.status, sent.is_replayed),
///     Err(failure) if failure.cause == Cause::Conflict => println!("a bug: the key was reused"),
///     // Still safe to send again later, with the same key.
///     Err(failure) if failure.cause.is_retryable() => println!("{failure}"),
///     Err(failure) => return Err(failure.into()),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Sender {
    transport: Arc<dyn Transport>,
    evidence: Evidence,
    retry: Retry,
    status_path: Option<StatusPath>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    sign: Arc<Sign>,
    budget: Arc<TpsBudget>,
    counters: Arc<Counters>,
}

type Sign = dyn Fn(&mut HeaderMap) + Send + Sync;

/// An operation that is done.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Sent {
    /// The service's answer.
    pub reply: Reply,
    /// Whether the service had kept it from an earlier attempt.
    pub is_replayed: bool,
    /// How often it was tried.
    pub attempts: u32,
}

impl Sender {
    /// A sender over `transport`, such as [`Http`](crate::Http), which decides about TLS and proxies.
    pub fn new(transport: impl Transport) -> Self {
        Self {
            transport: Arc::new(transport),
            evidence: Evidence::default(),
            retry: Retry::default(),
            status_path: None,
            clock: Arc::new(SystemClock::new()),
            entropy: Arc::new(OsEntropy::new()),
            sign: Arc::new(|_: &mut HeaderMap| {}),
            budget: Arc::new(TpsBudget::new(
                BUDGET_WINDOW,
                BUDGET_RETRIES_PER_SECOND,
                BUDGET_PART,
            )),
            counters: Arc::default(),
        }
    }

    /// The same, trying again like this.
    #[must_use]
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// The same, knowing the service's own answers by this.
    #[must_use]
    pub fn evidence(mut self, evidence: Evidence) -> Self {
        self.evidence = evidence;
        self
    }

    /// The same for a service that says what has become of a key: `path` is the `status_path` of its
    /// profile, such as `/status`. After a lost answer the service is asked before the operation is sent
    /// again. One that does not answer as the contract says is not believed: the operation is sent again
    /// as without this setting.
    pub fn status_path(mut self, path: &str) -> Result<Self, OperationError> {
        self.status_path = Some(StatusPath::new(path)?);
        Ok(self)
    }

    /// The same, with another bound on the retries of all operations together: `per_second`, and
    /// `part` of the operations of the last ten seconds.
    #[must_use]
    pub fn retry_budget(mut self, per_second: u32, part: f32) -> Self {
        let part = if part.is_finite() {
            part.clamp(0.0, 1000.0)
        } else {
            BUDGET_PART
        };
        let per_second = per_second.min(i32::MAX as u32 - 1);
        self.budget = Arc::new(TpsBudget::new(BUDGET_WINDOW, per_second, part));
        self
    }

    /// The same, proving who is calling: `sign` adds headers to every attempt, so that a retry has
    /// the newest token.
    #[must_use]
    pub fn sign_with(mut self, sign: impl Fn(&mut HeaderMap) + Send + Sync + 'static) -> Self {
        self.sign = Arc::new(sign);
        self
    }

    /// The same with another clock.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// The same with another source of randomness.
    #[must_use]
    pub fn entropy(mut self, entropy: Arc<dyn Entropy>) -> Self {
        self.entropy = entropy;
        self
    }

    /// What it has done so far.
    pub fn counts(&self) -> Counts {
        self.counters.read()
    }

    /// Sends the operation until it is done, the service has said no, or it was tried often
    /// enough. After a failure that [is retryable](Cause::is_retryable) it can be sent again later:
    /// with the same key. [`Failure::may_have_run`] is about all attempts.
    pub async fn send(&self, operation: &Operation, key: &Key) -> Result<Sent, Failure> {
        let started = self.clock.now();
        let (mut attempts, mut failures) = (0u32, 0u32);
        let (mut is_open, mut may_have_run) = (false, false);
        self.budget.deposit();
        loop {
            let attempted = if is_open {
                self.attempt_again(operation, key).await
            } else {
                self.attempt(operation, key).await
            };
            let failure = match attempted {
                Ok(sent) => {
                    let attempts = attempts + 1;
                    return Ok(Sent { attempts, ..sent });
                }
                Err(failure) => failure,
            };
            attempts += 1;
            failures += u32::from(failure.cause != Cause::InProgress);
            is_open = failure.cause.may_still_run();
            let failure = Failure {
                attempts,
                ..failure
            };
            let failure = failure.after(may_have_run);
            may_have_run = failure.may_have_run();
            if !failure.cause.is_retryable() || failures >= self.retry.attempts_max {
                return Err(failure);
            }
            let delay = self.retry.delay(&failure, failures, &*self.entropy);
            let elapsed = self.clock.now().saturating_sub(started);
            if elapsed.saturating_add(delay) > self.retry.total_max {
                return Err(failure);
            }
            if !self.budget.withdraw() {
                add(&self.counters.throttled);
                return Err(failure);
            }
            sleep(delay).await;
            add(&self.counters.retries);
        }
    }

    /// Sends the operation once, whatever comes of it.
    pub async fn attempt(&self, operation: &Operation, key: &Key) -> Result<Sent, Failure> {
        let request = self.request(operation, key)?;
        add(&self.counters.attempts);
        let exchanged = timeout(self.retry.attempt_timeout, self.exchange(request));
        let judged = match exchanged.await {
            Ok(Ok(reply)) => self.judge(operation, reply),
            Ok(Err(error)) => Err(unanswered(error)),
            Err(_elapsed) => {
                let bound = self.retry.attempt_timeout;
                let detail = format!("nothing came in {bound:?}");
                Err(Failure::new(Cause::Interrupted, detail))
            }
        };
        self.count(&judged);
        judged.map_err(|failure| Failure {
            attempts: 1,
            ..failure
        })
    }

    /// Sends a request, and sends it on within its origin if the service says so.
    async fn exchange(&self, mut request: Request<bytes::Bytes>) -> Result<Reply, TransportError> {
        let mut reply = self.transport.exchange(request.clone()).await?;
        for _ in 0..REDIRECTS_MAX {
            let Some(there) = same_request_elsewhere(&request, &reply) else {
                break;
            };
            *request.uri_mut() = there;
            let sent_on = self.transport.exchange(request.clone()).await;
            reply = sent_on.map_err(|error| match error {
                // The first address did receive it.
                TransportError::NotSent(source) => TransportError::Interrupted(source),
                error @ TransportError::Interrupted(_) => error,
            })?;
        }
        Ok(reply)
    }

    /// What an answer says about the operation: nothing, unless it is the service's own.
    fn judge(&self, operation: &Operation, reply: Reply) -> Result<Sent, Failure> {
        if let Some(why) = self.evidence.missing(operation, &reply) {
            return Err(Failure {
                reply: Some(Box::new(reply)),
                ..Failure::new(Cause::NotTheService, why)
            });
        }
        if !self.evidence.is_done(&reply) {
            return Err(reply.into_failure(self.clock.wall()));
        }
        Ok(Sent {
            is_replayed: reply.is_replayed(),
            reply,
            attempts: 1,
        })
    }

    pub(crate) fn own_transport(&self) -> &dyn Transport {
        &*self.transport
    }

    pub(crate) fn own_status_path(&self) -> Option<&StatusPath> {
        self.status_path.as_ref()
    }

    pub(crate) fn own_counters(&self) -> &Counters {
        &self.counters
    }

    pub(crate) fn own_clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    pub(crate) fn own_entropy(&self) -> &Arc<dyn Entropy> {
        &self.entropy
    }

    pub(crate) fn own_retry(&self) -> &Retry {
        &self.retry
    }

    pub(crate) fn count_retry(&self) {
        add(&self.counters.retries);
    }

    pub(crate) fn count_failure(&self, cause: Cause) {
        self.counters.failed(cause);
    }

    /// The operation under its key, signed.
    pub(crate) fn request(
        &self,
        operation: &Operation,
        key: &Key,
    ) -> Result<Request<bytes::Bytes>, Failure> {
        let unsendable = |what: &str| {
            let detail = format!("{what} cannot be sent over HTTP");
            Failure::new(Cause::Rejected, detail)
        };
        let uri: Uri = operation
            .url()
            .as_str()
            .parse()
            .map_err(|_| unsendable("the address"))?;
        let mut request = Request::new(operation.bytes().clone());
        *request.method_mut() = operation.method().clone();
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        headers.clone_from(operation.headers());
        (self.sign)(headers);
        // Last, so that nothing else can be the key.
        let value =
            key_header(key).map_err(|error| Failure::new(Cause::Rejected, error.to_string()))?;
        headers.insert(IDEMPOTENCY_KEY, value);
        Ok(request)
    }

    fn count(&self, judged: &Result<Sent, Failure>) {
        match judged {
            Ok(sent) => {
                add(&self.counters.succeeded);
                if sent.is_replayed {
                    add(&self.counters.replayed);
                }
            }
            Err(failure) => self.counters.failed(failure.cause),
        }
    }
}

fn unanswered(error: TransportError) -> Failure {
    let cause = match &error {
        TransportError::NotSent(_) => Cause::Unreachable,
        TransportError::Interrupted(_) => Cause::Interrupted,
    };
    Failure {
        source: Some(error.into()),
        ..Failure::new(cause, "")
    }
}
