//! What the gateway's memory grows by with many live keys.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde::Deserialize;

use super::Options;
use super::upstream::Upstream;
use crate::failure::Failure;
use crate::proxy::Onlyonce;
use crate::report::{Goal, Row, Unit};
use crate::say;
use crate::system::resident_mb;
use crate::wrk::{self, Keys, Load};

/// How long a turn of filling is, before it is looked how far it came.
const TURN_SECONDS: u64 = 5;
const OVERHEAD_BYTES_MAX: f64 = 100.0;

/// What the gateway says that its store holds.
#[derive(Clone, Copy, Deserialize)]
pub(crate) struct Stats {
    pub(crate) records: u64,
    bytes: u64,
}

pub(super) fn run(options: &Options, upstream: &Upstream) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    let roomy = format!("memory:?records_max={}", 2 * options.keys);
    rows.extend(fill(
        options,
        upstream,
        ("memory", &roomy),
        Some(OVERHEAD_BYTES_MAX),
    )?);
    let folder = tempfile::tempdir().map_err(Failure::doing("make a folder"))?;
    let url = format!("file:{}/data", folder.path().display());
    rows.extend(fill(options, upstream, ("file", &url), None)?);
    Ok(rows)
}

fn fill(
    options: &Options,
    upstream: &Upstream,
    (name, store): (&str, &str),
    goal: Option<f64>,
) -> Result<Vec<Row>, Failure> {
    let gateway = Onlyonce::start(&options.program()?, upstream.port(), store)?;
    let pid = gateway.pid().to_string();
    // Connections and their buffers are there either way.
    wrk::run(Load::new(gateway.port(), Keys::None, 1), &[])?;
    let before = resident_mb(&pid);
    let full = loop {
        wrk::run(Load::new(gateway.port(), Keys::New, TURN_SECONDS), &[])?;
        let stats = stats(&gateway)?;
        say(&format!("gateway, {name} store: {} keys", stats.records));
        if stats.records >= options.keys {
            break stats;
        }
    };
    let grown = resident_mb(&pid) - before;
    let case = format!("{} live keys, {name} store", full.records);
    let row = |what, figure, goal| Row::alone("gateway", &case, what, figure, goal);
    let a_key = |bytes: f64| (bytes / full.records as f64, Unit::Bytes);
    let stored = match name {
        // What is on the disk takes no memory.
        "file" => 0.0,
        // The whole records, as the memory store counts them.
        _ => full.bytes as f64,
    };
    Ok(vec![
        row("memory", (grown, Unit::Megabytes), None),
        row("stored a key", a_key(full.bytes as f64), None),
        row(
            "memory a key, over what is stored in it",
            a_key(grown * 1e6 - stored),
            goal.map(Goal::Below),
        ),
    ])
}

/// Asks for it.
pub(crate) fn stats(gateway: &Onlyonce) -> Result<Stats, Failure> {
    let cannot = || Failure::doing("ask the gateway for its stats");
    let mut stream = TcpStream::connect(("127.0.0.1", gateway.admin())).map_err(cannot())?;
    let request = b"GET /api/v1/stats HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
    stream.write_all(request).map_err(cannot())?;
    let mut said = String::new();
    stream.read_to_string(&mut said).map_err(cannot())?;
    let (_, body) = said.split_once("\r\n\r\n").unwrap_or_default();
    serde_json::from_str(body).map_err(Failure::doing("read the gateway's stats"))
}
