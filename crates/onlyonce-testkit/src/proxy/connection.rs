//! One connection through the proxy: two directions that share what was said last.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::sleep;

use super::Shared;

const CHUNK_BYTES: usize = 64 * 1024;

/// What both directions of a connection know.
#[derive(Default)]
struct Talk {
    /// The client spoke, and has not heard the server since.
    is_asked: AtomicBool,
    /// Whatever the server says next is lost.
    is_doomed: AtomicBool,
}

/// Passes on what both sides say until they are done, or the connection is broken.
pub(super) async fn run(mut client: TcpStream, shared: &Shared) -> io::Result<()> {
    drop(shared.gate.read().await);
    let mut server = TcpStream::connect(&shared.server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;

    let talk = Talk::default();
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let questions = ask(from_client, to_server, shared, &talk);
    let answers = answer(from_server, to_client, shared, &talk);
    tokio::try_join!(questions, answers).map(drop)
}

async fn ask(
    mut client: ReadHalf<'_>,
    mut server: WriteHalf<'_>,
    shared: &Shared,
    talk: &Talk,
) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut recent = Vec::new();
    loop {
        let length = client.read(&mut chunk).await?;
        let _pass = shared.gate.read().await;
        if length == 0 {
            return server.shutdown().await;
        }
        if shared.is_fatal(&mut recent, &chunk[..length]) {
            talk.is_doomed.store(true, Ordering::SeqCst);
        }
        if !talk.is_asked.swap(true, Ordering::SeqCst) {
            shared.round_trips.fetch_add(1, Ordering::SeqCst);
        }
        server.write_all(&chunk[..length]).await?;
    }
}

async fn answer(
    mut server: ReadHalf<'_>,
    mut client: WriteHalf<'_>,
    shared: &Shared,
    talk: &Talk,
) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let length = server.read(&mut chunk).await?;
        let delay = shared.faults().delay;
        if !delay.is_zero() {
            sleep(delay).await;
        }
        let _pass = shared.gate.read().await;
        if length == 0 {
            return client.shutdown().await;
        }
        if shared.loses_reply(talk) {
            shared.replies_lost.fetch_add(1, Ordering::SeqCst);
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        talk.is_asked.store(false, Ordering::SeqCst);
        client.write_all(&chunk[..length]).await?;
    }
}

impl Shared {
    /// True if the reply to this request is to be lost. What we look for may lie across chunks.
    fn is_fatal(&self, recent: &mut Vec<u8>, chunk: &[u8]) -> bool {
        let mut faults = self.faults();
        let Some(part) = &faults.lose_reply_to else {
            recent.clear();
            return false;
        };
        recent.extend(chunk);
        let is_fatal = recent
            .windows(part.len().max(1))
            .any(|window| window == part);
        let kept = part.len().saturating_sub(1).min(recent.len());
        recent.drain(..recent.len() - kept);
        if is_fatal {
            faults.lose_reply_to = None;
        }
        is_fatal
    }

    /// True if what the server says is a reply that is to be lost.
    fn loses_reply(&self, talk: &Talk) -> bool {
        if talk.is_doomed.load(Ordering::SeqCst) {
            return true;
        }
        let mut faults = self.faults();
        let is_lost = faults.replies_to_lose > 0 && talk.is_asked.load(Ordering::SeqCst);
        faults.replies_to_lose -= u64::from(is_lost);
        is_lost
    }
}
