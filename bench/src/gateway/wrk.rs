//! Load from wrk: 64 connections, POST requests with 300 bytes of JSON and an unique number in a
//! header, which is the key where there shall be one.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::failure::Failure;
use crate::rounds::Sample;
use crate::system::cpu_seconds;
use crate::tool::WRK;

const CONNECTIONS: &str = "64";
/// Replays are of so many keys.
const SAME_KEYS: u64 = 1000;

/// Makes the keys of one run differ from those of all others.
static RUNS: AtomicU64 = AtomicU64::new(0);

/// All of a request but a number is made once: what is measured is not wrk.
const SCRIPT: &str = r#"
local header, prefix, modulus = "@HEADER@", "@PREFIX@", @MODULUS@
local body = '{"amount":1999,"currency":"EUR","customer":"cus_7","note":"'
body = body .. string.rep("x", 298 - #body) .. '"}'
local head = "POST /payments HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
  .. "Authorization: Bearer opaque-token-of-the-caller\r\nContent-Length: 300\r\n"
  .. header .. ": " .. prefix
local rest = "\r\n\r\n" .. body
local n = 0
request = function()
  n = n + 1
  return head .. (n % modulus) .. rest
end
"#;

/// Which keys the requests have.
#[derive(Clone, Copy)]
pub(super) enum Keys {
    /// None: they pass through.
    None,
    /// A new one each.
    New,
    /// A few, so that nearly all are replays.
    Same,
}

/// Runs for so long; the CPU time is that of these processes.
pub(super) fn run(port: u16, pids: &[u32], keys: Keys, seconds: u64) -> Result<Sample, Failure> {
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    let (header, modulus) = match keys {
        Keys::None => ("X-Request-Number", u64::MAX >> 12),
        Keys::New => ("Idempotency-Key", u64::MAX >> 12),
        Keys::Same => ("Idempotency-Key", SAME_KEYS),
    };
    let script = tempfile::NamedTempFile::new().map_err(Failure::doing("make a file"))?;
    let text = SCRIPT
        .replace("@HEADER@", header)
        .replace("@PREFIX@", &format!("7b0c1e64-4d1c-9d7e-{run:06}-"))
        .replace("@MODULUS@", &modulus.to_string());
    fs::write(script.path(), text).map_err(Failure::doing("write a script for wrk"))?;

    let cpu = || pids.iter().map(|pid| cpu_seconds(*pid)).sum::<f64>();
    let before = cpu();
    let mut command = WRK.command()?;
    command
        .args(["-t1", "-c", CONNECTIONS, "--latency", "-d"])
        .arg(format!("{seconds}s"));
    command
        .arg("-s")
        .arg(script.path())
        .arg(format!("http://127.0.0.1:{port}/payments"));
    let said = WRK.said(&mut command)?;
    let cpu = cpu() - before;
    if said.contains("Non-2xx") || said.contains("Socket errors") {
        return Err(Failure::new(format!("requests failed: {said}")));
    }
    sample(&said, cpu).ok_or_else(|| WRK.odd(&said))
}

fn sample(said: &str, cpu: f64) -> Option<Sample> {
    let lines = || said.lines().map(str::trim);
    let after = |label: &str| lines().find_map(|line| Some(line.strip_prefix(label)?.trim()));
    let requests = lines().find(|line| line.contains(" requests in "))?;
    let requests: f64 = requests.split(' ').next()?.parse().ok()?;
    Some(Sample {
        rate: after("Requests/sec:")?.parse().ok()?,
        per_cpu: Some(requests / cpu),
        p99: Some(micros(after("99%")?)?),
    })
}

/// A time as wrk writes it.
fn micros(text: &str) -> Option<f64> {
    let digits = text.trim_end_matches(char::is_alphabetic);
    let factor = match &text[digits.len()..] {
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        _ => return None,
    };
    Some(digits.parse::<f64>().ok()? * factor)
}
