//! Lines of one side. A byte that is no UTF-8 costs that character and not the session: it is read
//! as U+FFFD, as lenient readers do, and what is passed on is what was read.

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};

pub(crate) struct Lines<R> {
    reader: BufReader<R>,
    bytes_max: u64,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// Lines of at most `bytes_max` bytes; a longer one is an error.
    pub(crate) fn new(reader: R, bytes_max: u64) -> Self {
        let reader = BufReader::new(reader);
        Self { reader, bytes_max }
    }

    /// The next line without its end; nothing once the other side has closed.
    pub(crate) async fn next(&mut self) -> io::Result<Option<String>> {
        let mut line = Vec::new();
        let mut bounded = (&mut self.reader).take(self.bytes_max.saturating_add(1));
        if bounded.read_until(b'\n', &mut line).await? == 0 {
            return Ok(None);
        }
        if line.last() == Some(&b'\n') {
            line.pop();
            if line.last() == Some(&b'\r') {
                line.pop();
            }
        } else if line.len() as u64 > self.bytes_max {
            let what = format!("a message has more than {} bytes", self.bytes_max);
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        let text = String::from_utf8(line);
        Ok(Some(text.unwrap_or_else(|error| {
            String::from_utf8_lossy(error.as_bytes()).into_owned()
        })))
    }
}
