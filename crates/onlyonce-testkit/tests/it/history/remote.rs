//! A store for tests with real processes: any store behind a socket, one JSON line a verb. Its
//! connections can be cut.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use onlyonce_core::store::Receipt;
use onlyonce_core::{
    Claim, Claimed, Completed, Fingerprint, Lease, Meta, OnLapse, Origin, Overtaken, Record,
    Release, Released, Renewed, Response, Slot, State, Store, StoreError, StoreErrorKind,
    Timestamp, Token, async_trait,
};
use onlyonce_testkit::history::StoreFault;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, watch};

#[derive(Serialize, Deserialize)]
enum Ask {
    Claim(Wire<Claimed>, OnLapse, Meta),
    Renew(Wire<Renewed>, Duration),
    Complete(Wire<Completed>, Said, Duration),
    Release(Wire<Released>, bool),
    Settled([u8; 32], Token, Duration),
}

/// A claim or lease on its way.
#[derive(Serialize, Deserialize)]
struct Wire<T> {
    slot: [u8; 32],
    token: Token,
    fingerprint: [u8; 32],
    lease_for: Duration,
    keep_for: Duration,
    attempt: u32,
    #[serde(skip)]
    reply: std::marker::PhantomData<T>,
}

#[derive(Serialize, Deserialize)]
enum Told {
    Granted(u32, Option<(Meta, Duration)>),
    Stored(Timestamp, Timestamp, Timestamp),
    Shows(Box<Shown>),
    /// Dead, kept, absent or over.
    Yes,
    /// Lost.
    No,
    Failed,
}

#[derive(Serialize, Deserialize)]
struct Shown {
    token: Token,
    fingerprint: [u8; 32],
    on_lapse: OnLapse,
    attempt: u32,
    meta: Meta,
    created_at: Timestamp,
    completed_at: Option<Timestamp>,
    expires_at: Timestamp,
    keep_left: Duration,
    state: Stands,
}

#[derive(Serialize, Deserialize)]
enum Stands {
    Pending(Duration),
    Finished(Said),
    Unknown,
}

#[derive(Serialize, Deserialize)]
struct Said {
    status: u16,
    body: Vec<u8>,
    panicked: bool,
    took: Duration,
}

/// A store that others reach through a socket.
pub(super) struct Server {
    pub(super) url: String,
    /// False while nobody is let in.
    open: Arc<watch::Sender<bool>>,
}

impl Server {
    pub(super) async fn start(store: Arc<dyn Store>) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("remote:{}", listener.local_addr()?);
        let open = Arc::new(watch::Sender::new(true));
        let gate = Arc::clone(&open);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (store, mut gate) = (Arc::clone(&store), gate.subscribe());
                tokio::spawn(async move {
                    tokio::select! {
                        biased;
                        _ = gate.wait_for(|open| !open) => {}
                        _ = serve(&*store, stream) => {}
                    }
                });
            }
        });
        Ok(Self { url, open })
    }

    /// Cuts every connection, and lets nobody in for a while.
    pub(super) fn cut(&self) -> StoreFault {
        let open = Arc::clone(&self.open);
        Arc::new(move |number| {
            let open = Arc::clone(&open);
            let lasts = Duration::from_millis(20 + number % 900);
            Box::pin(async move {
                open.send_replace(false);
                tokio::time::sleep(lasts).await;
                open.send_replace(true);
                format!("no connections for {lasts:?}")
            })
        })
    }
}

async fn serve(store: &dyn Store, stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (read, mut write) = stream.into_split();
    let mut lines = BufReader::new(read).lines();
    while let Some(line) = lines.next_line().await? {
        let told = answer(store, serde_json::from_str(&line)?).await;
        let told = told.unwrap_or(Told::Failed);
        write.write_all(&line_of(&told)?).await?;
    }
    Ok(())
}

async fn answer(store: &dyn Store, ask: Ask) -> Result<Told, StoreError> {
    Ok(match ask {
        Ask::Claim(wire, on_lapse, meta) => {
            let lease = wire.lease();
            let claim = Claim {
                slot: lease.slot,
                fingerprint: lease.fingerprint,
                token: lease.token,
                on_lapse,
                must_last: false,
                lease_for: lease.lease_for,
                keep_for: lease.keep_for,
                meta: Arc::new(meta),
            };
            match store.claim(&claim).await? {
                Claimed::Granted { lease, overtook } => Told::Granted(
                    lease.attempt,
                    overtook.map(|it| (Meta::clone(&it.meta), it.age)),
                ),
                Claimed::Taken(record) => show(&record),
                Claimed::Dead => Told::Yes,
            }
        }
        Ask::Renew(wire, lease_for) => match store.renew(&wire.lease(), lease_for).await? {
            Renewed::Kept => Told::Yes,
            Renewed::Lost => Told::No,
            Renewed::Busy => Told::Failed,
        },
        Ask::Complete(wire, said, keep_for) => {
            let response = Arc::new(said.response());
            match store.complete(&wire.lease(), &response, keep_for).await? {
                Completed::Stored(it) => {
                    Told::Stored(it.created_at, it.completed_at, it.expires_at)
                }
                Completed::Found(record) => show(&record),
                Completed::Absent => Told::Yes,
            }
        }
        Ask::Release(wire, unknown) => {
            let why = if unknown {
                Release::Unknown
            } else {
                Release::NotRun
            };
            match store.release(&wire.lease(), why).await? {
                Released::Ended => Told::Yes,
                Released::Found(record) => show(&record),
            }
        }
        Ask::Settled(slot, seen, at_most) => {
            let slot = Slot::from_bytes(slot);
            store.settled(&slot, &seen, at_most).await?;
            Told::Yes
        }
    })
}

/// The store behind the socket, as a worker sees it. A connection serves one verb at a time.
pub(super) struct Remote {
    server: SocketAddr,
    idle: Mutex<Vec<BufReader<TcpStream>>>,
}

impl Remote {
    pub(super) fn open(url: &str) -> Result<Arc<dyn Store>, String> {
        let server = url.strip_prefix("remote:").and_then(|it| it.parse().ok());
        let server = server.ok_or("no address of a remote store")?;
        let idle = Mutex::default();
        Ok(Arc::new(Self { server, idle }))
    }

    async fn ask(&self, ask: Ask) -> Result<Told, StoreError> {
        let asked = self.try_ask(ask).await;
        match asked {
            Ok(Told::Failed) => Err(unavailable("it failed")),
            Ok(told) => Ok(told),
            Err(error) => Err(unavailable(error)),
        }
    }

    async fn try_ask(&self, ask: Ask) -> io::Result<Told> {
        let idle = self.idle.lock().await.pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => {
                let stream = TcpStream::connect(self.server).await?;
                stream.set_nodelay(true)?;
                BufReader::new(stream)
            }
        };
        connection.write_all(&line_of(&ask)?).await?;
        let mut line = String::new();
        if connection.read_line(&mut line).await? == 0 {
            // Whoever waits in the pool was cut off as well.
            self.idle.lock().await.clear();
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let told = serde_json::from_str(&line)?;
        self.idle.lock().await.push(connection);
        Ok(told)
    }
}

#[async_trait]
impl Store for Remote {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        let ask = Ask::Claim(
            Wire::of(&claim.lease()),
            claim.on_lapse,
            Meta::clone(&claim.meta),
        );
        Ok(match self.ask(ask).await? {
            Told::Granted(attempt, overtook) => Claimed::Granted {
                lease: Lease {
                    attempt,
                    ..claim.lease()
                },
                overtook: overtook.map(|(meta, age)| Overtaken {
                    meta: Arc::new(meta),
                    age,
                }),
            },
            Told::Shows(shown) => Claimed::Taken(shown.record()),
            Told::Yes => Claimed::Dead,
            Told::Stored(..) | Told::No | Told::Failed => return Err(unavailable("it raves")),
        })
    }

    async fn renew(&self, lease: &Lease, lease_for: Duration) -> Result<Renewed, StoreError> {
        match self.ask(Ask::Renew(Wire::of(lease), lease_for)).await? {
            Told::Yes => Ok(Renewed::Kept),
            Told::No => Ok(Renewed::Lost),
            Told::Granted(..) | Told::Stored(..) | Told::Shows(_) | Told::Failed => {
                Err(unavailable("it raves"))
            }
        }
    }

    async fn complete(
        &self,
        lease: &Lease,
        response: &Arc<Response>,
        keep_for: Duration,
    ) -> Result<Completed, StoreError> {
        let ask = Ask::Complete(Wire::of(lease), Said::of(response), keep_for);
        Ok(match self.ask(ask).await? {
            Told::Stored(created_at, completed_at, expires_at) => Completed::Stored(Receipt {
                created_at,
                completed_at,
                expires_at,
            }),
            Told::Shows(shown) => Completed::Found(shown.record()),
            Told::Yes => Completed::Absent,
            Told::Granted(..) | Told::No | Told::Failed => return Err(unavailable("it raves")),
        })
    }

    async fn release(&self, lease: &Lease, why: Release) -> Result<Released, StoreError> {
        let ask = Ask::Release(Wire::of(lease), why == Release::Unknown);
        Ok(match self.ask(ask).await? {
            Told::Shows(shown) => Released::Found(shown.record()),
            Told::Yes => Released::Ended,
            Told::Granted(..) | Told::Stored(..) | Told::No | Told::Failed => {
                return Err(unavailable("it raves"));
            }
        })
    }

    async fn settled(
        &self,
        slot: &Slot,
        seen: &Token,
        at_most: Duration,
    ) -> Result<(), StoreError> {
        let ask = Ask::Settled(*slot.as_bytes(), *seen, at_most);
        self.ask(ask).await.map(drop)
    }
}

fn unavailable(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> StoreError {
    StoreError::new("remote", StoreErrorKind::Unavailable).caused_by(why)
}

fn line_of(value: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    Ok(line)
}

fn fingerprint(digest: [u8; 32]) -> Fingerprint {
    Fingerprint::new(Fingerprint::RECIPE, digest)
}

impl<T> Wire<T> {
    fn of(lease: &Lease) -> Self {
        Self {
            slot: *lease.slot.as_bytes(),
            token: lease.token,
            fingerprint: *lease.fingerprint.digest(),
            lease_for: lease.lease_for,
            keep_for: lease.keep_for,
            attempt: lease.attempt,
            reply: std::marker::PhantomData,
        }
    }

    fn lease(&self) -> Lease {
        Lease {
            slot: Slot::from_bytes(self.slot),
            token: self.token,
            fingerprint: fingerprint(self.fingerprint),
            lease_for: self.lease_for,
            keep_for: self.keep_for,
            attempt: self.attempt,
        }
    }
}

fn show(record: &Record) -> Told {
    Told::Shows(Box::new(Shown {
        token: record.token,
        fingerprint: *record.fingerprint.digest(),
        on_lapse: record.on_lapse,
        attempt: record.attempt,
        meta: Meta::clone(&record.meta),
        created_at: record.created_at,
        completed_at: record.completed_at,
        expires_at: record.expires_at,
        keep_left: record.keep_left,
        state: match &record.state {
            State::Pending { lease_left } => Stands::Pending(*lease_left),
            State::Done(response) | State::Failed(response) => Stands::Finished(Said::of(response)),
            State::Unknown => Stands::Unknown,
        },
    }))
}

impl Shown {
    fn record(self) -> Record {
        Record {
            token: self.token,
            fingerprint: fingerprint(self.fingerprint),
            on_lapse: self.on_lapse,
            attempt: self.attempt,
            meta: Arc::new(self.meta),
            created_at: self.created_at,
            completed_at: self.completed_at,
            expires_at: self.expires_at,
            keep_left: self.keep_left,
            replays: 0,
            state: match self.state {
                Stands::Pending(lease_left) => State::Pending { lease_left },
                Stands::Finished(said) => State::finished(Arc::new(said.response())),
                Stands::Unknown => State::Unknown,
            },
        }
    }
}

impl Said {
    fn of(response: &Response) -> Self {
        Self {
            status: response.status.as_u16(),
            body: response.body.to_vec(),
            panicked: response.origin == Origin::Panicked,
            took: response.took,
        }
    }

    fn response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or_default();
        Response {
            took: self.took,
            origin: if self.panicked {
                Origin::Panicked
            } else {
                Origin::Handler
            },
            ..Response::new(status, self.body)
        }
    }
}
