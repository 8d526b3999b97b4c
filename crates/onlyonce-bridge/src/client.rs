//! The client's half for a host: requests under their keys, sent again where that can help, and the
//! durable queue of them.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use http::header::{HeaderName, InvalidHeaderName, InvalidHeaderValue};
use http::method::InvalidMethod;
use http::{HeaderMap, HeaderValue, Method};
use onlyonce_client::{
    Counts, Evidence, Failure, Https, Key, KeyNotSendable, Operation, OperationError, Queue,
    QueueError, QueueOptions, Retry, Sender, Sent, key_header,
};
use onlyonce_core::{KeyError, KeyRule};
use thiserror::Error;
use tokio::task::JoinHandle;

use crate::forks::{OpenInParent, opens_queue};
use crate::pending::Pending;
use crate::threads::{CloseError, Threads};

mod deliver;

/// A body whose type is not given.
const ANY_TYPE: &str = "application/octet-stream";

/// How requests are sent. What is not given is as [`Retry`] has it.
#[derive(Clone, Default)]
pub struct ClientSettings {
    /// How often a request is tried.
    pub attempts_max: Option<u32>,
    /// How long one attempt may take.
    pub attempt_timeout: Option<Duration>,
    /// The bounds of the pauses between attempts.
    pub backoff: Option<(Duration, Duration)>,
    /// No attempt begins later than this after the first.
    pub total_max: Option<Duration>,
    /// Where the service says what has become of a key.
    pub status_path: Option<String>,
    /// Whether the service answers with web pages.
    pub allows_pages: bool,
}

/// What a host wants to be sent.
pub struct Wanted {
    /// Its method.
    pub method: String,
    /// Where it goes.
    pub url: String,
    /// Its headers.
    pub headers: Vec<(String, String)>,
    /// Its body.
    pub body: Option<Vec<u8>>,
}

/// What cannot be sent.
#[derive(Debug, Error)]
pub enum WantedError {
    /// Not a method.
    #[error("the method is not valid: write it like POST")]
    Method(#[from] InvalidMethod),
    /// Not the name of a header.
    #[error("a header's name is not valid")]
    HeaderName(#[from] InvalidHeaderName),
    /// Not the value of a header.
    #[error("a header's value is not valid")]
    HeaderValue(#[from] InvalidHeaderValue),
    /// A credential, which must not lie on disk.
    #[error(
        "the header {name} is a credential, and an operation lies on disk: give it to the client, which adds it to each attempt"
    )]
    Credential {
        /// Which.
        name: HeaderName,
    },
    /// Anything else.
    #[error(transparent)]
    Operation(#[from] OperationError),
    /// Not a key.
    #[error("the key is not valid: {0}")]
    Key(#[from] KeyError),
    /// A key that services would read as another one.
    #[error(transparent)]
    KeyNotSendable(#[from] KeyNotSendable),
}

/// Whether an operation's headers may prove who is calling.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Credentials {
    /// It is only in memory.
    Allowed,
    /// It will lie on disk.
    Refused,
}

impl Wanted {
    /// The operation, checked.
    pub fn operation(self, credentials: Credentials) -> Result<Operation, WantedError> {
        let method = Method::from_bytes(self.method.to_ascii_uppercase().as_bytes())?;
        let mut operation = Operation::new(method, &self.url)?;
        if let Some(body) = self.body {
            operation = operation.body(ANY_TYPE, body)?;
        }
        for (name, value) in self.headers {
            let name = HeaderName::from_bytes(name.as_bytes())?;
            operation = match credentials {
                Credentials::Allowed => operation.credential(name, &value)?,
                Credentials::Refused => match operation.header(name.clone(), &value) {
                    Err(OperationError::Credential { .. }) => {
                        return Err(WantedError::Credential { name });
                    }
                    with => with?,
                },
            };
        }
        Ok(operation)
    }
}

/// A name that a host gives to what is not sent by that name.
pub fn name(text: &str) -> Result<Key, WantedError> {
    Ok(Key::new(text, &KeyRule::any())?)
}

/// A key that a host names.
pub fn key(text: &str) -> Result<Key, WantedError> {
    let key = name(text)?;
    key_header(&key)?;
    Ok(key)
}

/// Headers, checked.
pub fn headers(pairs: Vec<(String, String)>) -> Result<HeaderMap, WantedError> {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        let mut value = HeaderValue::from_str(&value)?;
        value.set_sensitive(true);
        headers.insert(HeaderName::from_bytes(name.as_bytes())?, value);
    }
    Ok(headers)
}

/// Sends requests under their keys. Clones are one client.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

struct Shared {
    threads: Threads,
    sender: Sender,
    headers: Arc<RwLock<HeaderMap>>,
}

/// Why a client did not open.
#[derive(Debug, Error)]
pub enum ClientFailure {
    /// No threads.
    #[error("cannot start the client's threads")]
    Threads(#[from] io::Error),
    /// A setting is wrong.
    #[error(transparent)]
    Setting(#[from] OperationError),
}

impl Client {
    /// A client; `headers` are added to each attempt.
    pub fn open(settings: ClientSettings, headers: HeaderMap) -> Result<Self, ClientFailure> {
        let usual = Retry::default();
        let (backoff_min, backoff_max) = settings
            .backoff
            .unwrap_or((usual.backoff_min, usual.backoff_max));
        let retry = Retry {
            attempts_max: settings.attempts_max.unwrap_or(usual.attempts_max),
            attempt_timeout: settings.attempt_timeout.unwrap_or(usual.attempt_timeout),
            backoff_min,
            backoff_max,
            total_max: settings.total_max.unwrap_or(usual.total_max),
            ..usual
        };
        let evidence = Evidence::default();
        let evidence = match settings.allows_pages {
            true => evidence.pages(),
            false => evidence,
        };
        let headers = Arc::new(RwLock::new(headers));
        let signing = Arc::clone(&headers);
        let mut sender = Sender::new(Https::new())
            .retry(retry)
            .evidence(evidence)
            .sign_with(move |request| {
                let headers = signing.read().unwrap_or_else(PoisonError::into_inner);
                for (name, value) in &*headers {
                    request.insert(name.clone(), value.clone());
                }
            });
        if let Some(path) = &settings.status_path {
            sender = sender.status_path(path)?;
        }
        let threads = Threads::start("client")?;
        let shared = Arc::new(Shared {
            threads,
            sender,
            headers,
        });
        Ok(Self { shared })
    }

    /// Adds these headers to each attempt from now on, instead of those before.
    pub fn authorize(&self, headers: HeaderMap) {
        let mut place = self
            .shared
            .headers
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *place = headers;
    }

    /// Sends an operation until it is done, the service has said no, or it was tried often enough, and
    /// makes something for the host of what came of it.
    pub fn send<T: Send + 'static>(
        &self,
        operation: Operation,
        key: Key,
        make: impl FnOnce(Result<Sent, Failure>) -> T + Send + 'static,
    ) -> Result<Pending<T>, CloseError> {
        let handle = self.shared.threads.handle()?;
        let sender = self.shared.sender.clone();
        let sending = async move { make(sender.send(&operation, &key).await) };
        Ok(Pending::start(handle, sending))
    }

    /// What it has done so far.
    pub fn counts(&self) -> Counts {
        self.shared.sender.counts()
    }
}

/// A durable queue of operations, which a client sends.
pub struct Outbox {
    client: Client,
    /// Held for a moment only, never while something is awaited.
    open: Mutex<Open>,
}

struct Open {
    queue: Option<Queue>,
    delivery: Option<JoinHandle<()>>,
}

/// Why a queue did not open.
#[derive(Debug, Error)]
pub enum OutboxFailure {
    /// Its client is of another process.
    #[error(transparent)]
    Client(#[from] CloseError),
    /// It was open before a fork.
    #[error(transparent)]
    OpenInParent(#[from] OpenInParent),
    /// The folder.
    #[error(transparent)]
    Queue(#[from] QueueError),
}

impl Outbox {
    /// Opens the queue in a folder, which several processes may share. Blocks.
    pub fn open(
        folder: &Path,
        client: &Client,
        options: QueueOptions,
    ) -> Result<Self, OutboxFailure> {
        let handle = client.shared.threads.handle()?;
        opens_queue(folder)?;
        let sender = client.shared.sender.clone();
        let queue = handle.block_on(Queue::open_shared(folder, sender, options))?;
        queue.observe(deliver::log);
        Ok(Self {
            client: client.clone(),
            open: Mutex::new(Open {
                queue: Some(queue),
                delivery: None,
            }),
        })
    }

    /// Does something with the queue.
    pub fn ask<F>(&self, work: impl FnOnce(Queue) -> F) -> Result<Pending<F::Output>, CloseError>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        let handle = self.client.shared.threads.handle()?;
        let closed = CloseError::Closed { what: "queue" };
        let queue = self.lock().queue.clone().ok_or(closed)?;
        Ok(Pending::start(handle, work(queue)))
    }

    /// Sends what is queued, from now on and in the background, until it is closed. Of the processes that
    /// share a folder one sends; when it ends, another goes on.
    pub fn start(&self) -> Result<(), CloseError> {
        let handle = self.client.shared.threads.handle()?;
        let closed = CloseError::Closed { what: "queue" };
        let mut open = self.lock();
        let queue = open.queue.clone().ok_or(closed)?;
        if open.delivery.is_none() {
            open.delivery = Some(handle.spawn(deliver::run(queue)));
        }
        Ok(())
    }

    /// Stops sending and gives the folder up. What is being sent is sent again later, under its key. Blocks, and
    /// nobody else meanwhile.
    pub fn close(&self) {
        let Ok(handle) = self.client.shared.threads.handle() else {
            // The database's thread is the parent's.
            return;
        };
        let (delivery, queue) = {
            let mut open = self.lock();
            (open.delivery.take(), open.queue.take())
        };
        if let Some(delivery) = delivery {
            delivery.abort();
            // It has given the queue up once it has ended.
            drop(handle.block_on(delivery));
        }
        drop(queue);
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.close();
        if self.client.shared.threads.are_of_a_parent() {
            let open = self.open.get_mut();
            let open = open.unwrap_or_else(PoisonError::into_inner);
            std::mem::forget((open.queue.take(), open.delivery.take()));
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client")
    }
}
