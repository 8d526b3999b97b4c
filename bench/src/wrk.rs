//! Load from wrk: POST requests with JSON and a number in a header, which is the key where there shall
//! be one.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::failure::Failure;
use crate::rounds::Sample;
use crate::system::cpu_seconds;
use crate::tool::WRK;

pub(crate) const CONNECTIONS: usize = 64;
pub(crate) const BODY_BYTES: usize = 300;
/// What stands before the number of a request that is sent again and again.
const SAME: &str = "7b0c1e64-4d1c-9d7e-000000-";

/// Makes the keys of one run differ from those of all others.
static RUNS: AtomicU64 = AtomicU64::new(1);

/// All of a request but a number is made once: what is measured is not wrk.
const SCRIPT: &str = r#"
local modulus, head, rest = @MODULUS@, @HEAD@, @REST@
local cookies = { @COOKIES@ }
local count, n = #cookies, 0
request = function()
  n = n + 1
  local number = n % modulus
  return head .. number .. cookies[number % count + 1] .. rest
end
done = function(summary, latency)
  local e = summary.errors
  print(string.format("measured %d %d %d %d %d %d", summary.requests, summary.duration,
    latency:percentile(50), latency:percentile(99), latency:percentile(99.9),
    e.connect + e.read + e.write + e.status + e.timeout))
end
"#;

/// Which keys the requests have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keys {
    /// None: they pass through.
    None,
    /// A new one each.
    New,
    /// So many, again and again: nearly all are replays.
    Same(u64),
}

/// What is sent where, and how long.
#[derive(Clone, Copy)]
pub(crate) struct Load<'a> {
    pub(crate) port: u16,
    pub(crate) path: &'a str,
    pub(crate) keys: Keys,
    pub(crate) connections: usize,
    pub(crate) body_bytes: usize,
    /// The sessions that the requests take turns with, where there are any.
    pub(crate) cookies: &'a [String],
    pub(crate) seconds: u64,
}

impl Load<'_> {
    pub(crate) fn new(port: u16, keys: Keys, seconds: u64) -> Self {
        Self {
            port,
            path: "/payments",
            keys,
            connections: CONNECTIONS,
            body_bytes: BODY_BYTES,
            cookies: &[],
            seconds,
        }
    }

    fn script(&self) -> String {
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("7b0c1e64-4d1c-9d7e-{run:06}-");
        let (header, prefix, modulus) = match self.keys {
            Keys::None => ("X-Request-Number", prefix.as_str(), u64::MAX >> 12),
            Keys::New => ("Idempotency-Key", prefix.as_str(), u64::MAX >> 12),
            Keys::Same(count) => ("Idempotency-Key", SAME, count),
        };
        let head = format!(
            "POST {} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
             Authorization: {AUTHORIZATION}\r\nContent-Length: {}\r\n{header}: {prefix}",
            self.path, self.body_bytes,
        );
        let rest = format!("\r\n\r\n{}", body(self.body_bytes));
        let cookies = self.cookies.iter();
        let mut cookies: Vec<_> = cookies
            .map(|cookie| format!("{:?}", format!("\r\nCookie: {cookie}")))
            .collect();
        if cookies.is_empty() {
            cookies.push("\"\"".to_owned());
        }
        SCRIPT
            .replace("@MODULUS@", &modulus.to_string())
            .replace("@HEAD@", &format!("{head:?}"))
            .replace("@COOKIES@", &cookies.join(", "))
            .replace("@REST@", &format!("{rest:?}"))
    }
}

pub(crate) const AUTHORIZATION: &str = "Bearer opaque-token-of-the-caller";

/// The key of a request that is sent again and again.
pub(crate) fn same_key(number: u64) -> String {
    format!("{SAME}{number}")
}

/// JSON of this length.
pub(crate) fn body(bytes: usize) -> String {
    let start = r#"{"amount":1999,"currency":"EUR","customer":"cus_7","note":""#;
    let fill = "x".repeat(bytes.saturating_sub(start.len() + 2));
    format!("{start}{fill}\"}}")
}

/// Runs for so long; the CPU time is that of these processes. A request that fails is a failure.
pub(crate) fn run(load: Load<'_>, pids: &[u32]) -> Result<Sample, Failure> {
    let script = tempfile::NamedTempFile::new().map_err(Failure::doing("make a file"))?;
    fs::write(script.path(), load.script()).map_err(Failure::doing("write a script for wrk"))?;
    let cpu = || pids.iter().map(|pid| cpu_seconds(*pid)).sum::<f64>();
    let before = cpu();
    let mut command = WRK.command()?;
    command.arg("-t1").arg(format!("-c{}", load.connections));
    command.arg("-d").arg(format!("{}s", load.seconds));
    command.arg("--timeout").arg("10s");
    command.arg("-s").arg(script.path());
    command.arg(format!("http://127.0.0.1:{}{}", load.port, load.path));
    let said = WRK.said(&mut command)?;
    let measured = Measured::read(&said).ok_or_else(|| WRK.odd(&said))?;
    measured.sample(cpu() - before)
}

struct Measured {
    requests: f64,
    seconds: f64,
    micros: [f64; 3],
    failed: f64,
}

impl Measured {
    fn read(said: &str) -> Option<Self> {
        let line = said
            .lines()
            .find_map(|line| line.strip_prefix("measured "))?;
        let mut figures = line.split(' ').map_while(|it| it.parse::<f64>().ok());
        let mut next = || figures.next();
        Some(Self {
            requests: next()?,
            seconds: next()? / 1e6,
            micros: [next()?, next()?, next()?],
            failed: next()?,
        })
    }

    fn sample(&self, cpu: f64) -> Result<Sample, Failure> {
        let Self {
            requests, failed, ..
        } = self;
        if *failed > 0.0 || *requests == 0.0 {
            return Err(Failure::new(format!(
                "{failed} of {requests} requests failed"
            )));
        }
        let [p50, p99, p999] = self.micros;
        Ok(Sample {
            rate: requests / self.seconds,
            per_cpu: (cpu > 0.0).then(|| requests / cpu),
            p50: Some(p50),
            p99: Some(p99),
            p999: Some(p999),
        })
    }
}
