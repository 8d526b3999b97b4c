//! Stdin, read by a thread that is never joined: a read that never returns must not keep the
//! program from ending when the server has.

use std::io::{self, Read};

use bytes::Bytes;
use futures_util::stream;
use tokio::io::AsyncRead;
use tokio::sync::mpsc;
use tokio_util::io::StreamReader;

const CHUNK_BYTES: usize = 64 * 1024;
const CHUNKS_MAX: usize = 4;

pub(crate) fn reader() -> impl AsyncRead + Unpin {
    let (chunks, mut read) = mpsc::channel(CHUNKS_MAX);
    std::thread::spawn(move || {
        let mut stdin = io::stdin().lock();
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let read = match stdin.read(&mut chunk) {
                Ok(0) => return,
                Ok(bytes) => Ok(Bytes::copy_from_slice(&chunk[..bytes])),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
            let is_over = read.is_err();
            if chunks.blocking_send(read).is_err() || is_over {
                return;
            }
        }
    });
    StreamReader::new(stream::poll_fn(move |cx| read.poll_recv(cx)))
}
