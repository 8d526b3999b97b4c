//! Server-sent events, as far as MCP needs them: each event's data, its id and the pause before a
//! reconnect, within a bound.

use std::time::Duration;

use thiserror::Error;

#[cfg(test)]
mod tests;

/// What came out of a stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// The event's data; nothing for one that only primes a reconnect.
    pub data: Option<String>,
    /// The id to go on after, where the server gave one.
    pub id: Option<String>,
}

/// An event has more bytes than are taken.
#[derive(Debug, Error)]
#[error("an event has more than {bytes_max} bytes")]
pub struct TooLarge {
    bytes_max: usize,
}

/// Reads events from pieces of a stream.
#[derive(Debug)]
pub struct Events {
    bytes_max: usize,
    line: Vec<u8>,
    /// A line ended with CR, and LF may follow as the rest of that end.
    after_cr: bool,
    data: Option<String>,
    id: Option<String>,
    retry: Option<Duration>,
    is_start: bool,
    /// Larger events are left out.
    skips_large: bool,
    /// The current event is one of them: of its lines it is only kept whether they are empty.
    is_skipped: bool,
}

impl Events {
    /// Events of at most `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            line: Vec::new(),
            after_cr: false,
            data: None,
            id: None,
            retry: None,
            is_start: true,
            skips_large: false,
            is_skipped: false,
        }
    }

    /// The same, and larger ones are left out.
    pub fn small(bytes_max: usize) -> Self {
        Self {
            skips_large: true,
            ..Self::new(bytes_max)
        }
    }

    /// How long the server wants clients to wait before they connect again.
    pub fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// The events that end in this piece.
    pub fn feed(&mut self, piece: &[u8]) -> Result<Vec<Event>, TooLarge> {
        let mut events = Vec::new();
        for &byte in piece {
            let is_rest_of_end = std::mem::take(&mut self.after_cr) && byte == b'\n';
            match byte {
                _ if is_rest_of_end => {}
                b'\n' | b'\r' => {
                    self.after_cr = byte == b'\r';
                    events.extend(self.end_line());
                }
                other => self.push(other)?,
            }
        }
        Ok(events)
    }

    fn push(&mut self, byte: u8) -> Result<(), TooLarge> {
        let held = self.data.as_ref().map_or(0, String::len);
        if !self.is_skipped && self.line.len() + held < self.bytes_max {
            self.line.push(byte);
            return Ok(());
        }
        if !self.skips_large {
            let bytes_max = self.bytes_max;
            return Err(TooLarge { bytes_max });
        }
        (self.is_skipped, self.data) = (true, None);
        self.line = vec![byte];
        Ok(())
    }

    fn end_line(&mut self) -> Option<Event> {
        let line = std::mem::take(&mut self.line);
        if self.is_skipped {
            self.is_skipped = !line.is_empty();
            return None;
        }
        let line = String::from_utf8_lossy(&line);
        let line = match std::mem::take(&mut self.is_start) {
            true => line.trim_start_matches('\u{feff}'),
            false => &line,
        };
        if line.is_empty() {
            return self.end_event();
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.to_owned()),
            },
            "id" if !value.contains('\0') => self.id = Some(value.to_owned()),
            "retry" => self.retry = value.parse().ok().map(Duration::from_millis),
            _ => {}
        }
        None
    }

    fn end_event(&mut self) -> Option<Event> {
        let data = self.data.take().filter(|data| !data.is_empty());
        let id = self.id.take();
        (data.is_some() || id.is_some()).then_some(Event { data, id })
    }
}

/// One message as an event.
pub fn event(message: &str) -> String {
    // A message has no bare line end: in JSON they stand between tokens only.
    let line = message.replace(['\n', '\r'], " ");
    format!("event: message\ndata: {line}\n\n")
}
