//! Where connections come into the proxy, as long as it lets them.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener as Listener};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::{Shared, connection};
use crate::servers::free_port;

const BIND_ATTEMPTS_MAX: usize = 500;
const BIND_PAUSE: Duration = Duration::from_millis(20);

/// Where connections come in.
pub(super) struct Door {
    listener: Listener,
    accepting: JoinHandle<()>,
}

impl Door {
    pub(super) fn open(listener: Listener, shared: &Arc<Shared>) -> io::Result<Self> {
        let entrance = TcpListener::from_std(listener.try_clone()?)?;
        let accepting = tokio::spawn(accept(entrance, shared.clone()));
        Ok(Self {
            listener,
            accepting,
        })
    }

    /// Closes at once, without waiting for it.
    pub(super) fn abandon(&self) {
        self.accepting.abort();
    }

    /// Stops accepting and turns away who waits in the queue: a client takes such a connection
    /// for established.
    pub(super) async fn clear(self) -> io::Result<Listener> {
        end(self.accepting).await;
        loop {
            match self.listener.accept() {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(self.listener);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        match listener.accept().await {
            Ok((client, _)) => {
                let mut connections = shared.connections();
                connections.retain(|task| !task.is_finished());
                let task = serve(client, shared.clone());
                connections.push(tokio::spawn(task));
            }
            // One connection failed, or we are short of descriptors for a moment.
            Err(_) => sleep(BIND_PAUSE).await,
        }
    }
}

async fn serve(client: TcpStream, shared: Arc<Shared>) {
    // A connection breaks as connections do; both sides see it, and we are done with it.
    let _ = connection::run(client, &shared).await;
}

pub(super) async fn end(task: JoinHandle<()>) {
    task.abort();
    // It was cancelled, or had ended before.
    let _ = task.await;
}

/// Listens on a port of this address that stays ours.
pub(super) async fn listen_anywhere(ip: Ipv4Addr) -> io::Result<Listener> {
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for _ in 0..BIND_ATTEMPTS_MAX {
        let port = free_port().map_err(io::Error::other)?;
        match TcpListener::bind((ip, port)).await {
            Ok(listener) => return listener.into_std(),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Listens where we did before. Someone who looks for a free port may hold ours for a moment.
pub(super) async fn listen_again(address: SocketAddr) -> io::Result<Listener> {
    for _ in 1..BIND_ATTEMPTS_MAX {
        match TcpListener::bind(address).await {
            Ok(listener) => return listener.into_std(),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => sleep(BIND_PAUSE).await,
            Err(error) => return Err(error),
        }
    }
    TcpListener::bind(address).await?.into_std()
}
