//! A TCP proxy in front of a server: it counts round trips, and breaks what passes on command.
//!
//! ```
//! use onlyonce_testkit::proxy::Proxy;
//! # use tokio::io::{AsyncReadExt, AsyncWriteExt};
//! # use tokio::net::{TcpListener, TcpStream};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! # let server = TcpListener::bind("127.0.0.1:0").await?;
//! # let url = format!("redis://{}/7", server.local_addr()?);
//! # tokio::spawn(async move {
//! #     let (mut peer, _) = server.accept().await?;
//! #     peer.read_u8().await?;
//! #     peer.write_u8(b'!').await
//! # });
//! let proxy = Proxy::start(&url).await?;
//! assert!(proxy.url().ends_with("/7"));
//!
//! let mut client = TcpStream::connect(proxy.address()).await?;
//! client.write_u8(b'?').await?;
//! client.read_u8().await?;
//! assert_eq!(proxy.round_trips(), 1);
//! # Ok(())
//! # }
//! ```

mod connection;
mod door;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as Lock, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex, OwnedRwLockWriteGuard, RwLock};
use tokio::task::JoinHandle;

use self::door::{Door, end, listen_again, listen_anywhere};

/// A proxy in front of one server. It ends with this value.
///
/// What breaks something returns when it is broken: nothing passes afterwards.
pub struct Proxy {
    address: SocketAddr,
    url: String,
    shared: Arc<Shared>,
    /// Nothing while connections are refused.
    door: Mutex<Option<Door>>,
    /// Held while nothing may pass.
    barrier: Mutex<Option<OwnedRwLockWriteGuard<()>>>,
}

/// What the proxy and its connections have in common.
struct Shared {
    server: String,
    /// Bytes are passed on by who may read this.
    gate: Arc<RwLock<()>>,
    connections: Lock<Vec<JoinHandle<()>>>,
    round_trips: AtomicU64,
    replies_lost: AtomicU64,
    faults: Lock<Faults>,
}

/// What is to happen to the bytes that pass.
#[derive(Default)]
struct Faults {
    delay: Duration,
    replies_to_lose: u64,
    /// The reply to a request that contains this is lost.
    lose_reply_to: Option<Vec<u8>>,
}

impl Proxy {
    /// Starts a proxy in front of a server, given its address or its URL.
    pub async fn start(server: &str) -> io::Result<Self> {
        Self::start_on(Ipv4Addr::LOCALHOST, server).await
    }

    /// The same on another address of this machine, for clients in a network of their own.
    pub async fn start_on(ip: Ipv4Addr, server: &str) -> io::Result<Self> {
        let (before, host, after) = split(server)?;
        let listener = listen_anywhere(ip).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            server: host.to_owned(),
            gate: Arc::default(),
            connections: Lock::default(),
            round_trips: AtomicU64::new(0),
            replies_lost: AtomicU64::new(0),
            faults: Lock::default(),
        });
        let door = Door::open(listener, &shared)?;
        Ok(Self {
            address,
            url: format!("{before}{address}{after}"),
            shared,
            door: Mutex::new(Some(door)),
            barrier: Mutex::default(),
        })
    }

    /// Where it listens. That stays the same.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The server's URL with the address of the proxy in it.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// How often a client began to speak after it had heard the server, or as the first; over all
    /// connections, since the last reset.
    pub fn round_trips(&self) -> u64 {
        self.shared.round_trips.load(Ordering::SeqCst)
    }

    /// Starts to count round trips from zero.
    pub fn reset(&self) {
        self.shared.round_trips.store(0, Ordering::SeqCst);
    }

    /// How many connections are open.
    pub fn connections(&self) -> usize {
        let connections = self.shared.connections();
        let open = connections.iter().filter(|task| !task.is_finished());
        open.count()
    }

    /// Closes all connections. New ones are welcome.
    pub async fn cut(&self) -> io::Result<()> {
        let mut door = self.door.lock().await;
        let listener = match door.take() {
            Some(door) => Some(door.clear().await?),
            None => None,
        };
        let connections = std::mem::take(&mut *self.shared.connections());
        for connection in connections {
            end(connection).await;
        }
        if let Some(listener) = listener {
            *door = Some(Door::open(listener, &self.shared)?);
        }
        Ok(())
    }

    /// Lets connections be made and stay open, but passes nothing on.
    pub async fn stall(&self) {
        let mut barrier = self.barrier.lock().await;
        if barrier.is_none() {
            *barrier = Some(self.shared.gate.clone().write_owned().await);
        }
    }

    /// Closes all connections and refuses new ones.
    pub async fn refuse(&self) -> io::Result<()> {
        let door = self.door.lock().await.take();
        if let Some(door) = door {
            drop(door.clear().await?);
        }
        self.cut().await
    }

    /// Ends what [`stall`](Self::stall) and [`refuse`](Self::refuse) began.
    pub async fn resume(&self) -> io::Result<()> {
        self.barrier.lock().await.take();
        let mut door = self.door.lock().await;
        if door.is_none() {
            let listener = listen_again(self.address).await?;
            *door = Some(Door::open(listener, &self.shared)?);
        }
        Ok(())
    }

    /// Holds everything that the server says back for this long. Zero ends it.
    pub fn delay(&self, delay: Duration) {
        self.shared.faults().delay = delay;
    }

    /// Loses the next replies, whosever they are: each is swallowed and its connection closed. The
    /// server has done what it was asked to do.
    pub fn drop_replies(&self, count: u64) {
        self.shared.faults().replies_to_lose = count;
    }

    /// Loses the reply to the next request that contains these bytes, and closes its connection.
    pub fn drop_reply_to(&self, part: &[u8]) {
        self.shared.faults().lose_reply_to = Some(part.to_vec());
    }

    /// How many replies were lost so far.
    pub fn replies_lost(&self) -> u64 {
        self.shared.replies_lost.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(door) = self.door.get_mut() {
            door.abandon();
        }
        for connection in self.shared.connections().drain(..) {
            connection.abort();
        }
    }
}

impl Shared {
    fn connections(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        let connections = self.connections.lock();
        connections.unwrap_or_else(PoisonError::into_inner)
    }

    fn faults(&self) -> MutexGuard<'_, Faults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What stands before and after `host:port` in a URL.
fn split(url: &str) -> io::Result<(&str, &str, &str)> {
    let start = url.find("://").map_or(0, |at| at + 3);
    let length = url[start..].find(['/', '?', '#']);
    let end = length.map_or(url.len(), |length| start + length);
    let host = url[start..end]
        .rfind('@')
        .map_or(start, |at| start + at + 1);
    let address = &url[host..end];
    if address.contains(':') && !address.contains(',') {
        Ok((&url[..host], address, &url[end..]))
    } else {
        let what = format!("{address} is not one host and its port");
        Err(io::Error::new(io::ErrorKind::InvalidInput, what))
    }
}
