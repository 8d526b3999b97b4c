//! The arguments of `onlyonce verify`, as typed. What they mean together is the [`Plan`]'s.
//!
//! [`Plan`]: super::Plan

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use http::{HeaderName, HeaderValue, Method};
// Listed for the help, never told apart here.
use onlyonce_core::Profile as Preset;
use onlyonce_core::policy::KeyNeed;

const EXPLAINED: &str = "\
Sends real requests to URL, each with a fresh random key, and judges the answers by the profile.
Point it at an endpoint whose effects do no harm, such as one of a test account. It works best where
each execution answers something new, such as a fresh id: only then can a second execution be seen.
Where two executions answer the same bytes it says so (inconclusive) rather than pass.

Judgements:
  pass            the promise was seen to hold
  FAIL            the promise was seen broken, with the answers that show it
  ?               inconclusive: it could not be seen from outside; the line says why
  -               not applicable: the profile promises nothing here, or there is nothing to ask

Failures are grouped by their cause, the most harmful first: what may run twice, then what may show one
caller's data to another, what may lose an operation, what may refuse good requests, what may mislead
clients. Each has a code; --explain CODE says why it matters and how to mend it.

Watching (--watch): repeats the checks every --every, one line per round, for synthetic monitoring; an
endpoint that cannot be reached is a failed round. Ctrl-C (SIGINT) or SIGTERM ends it cleanly: the
exit code is 1 if the last finished round had failed, else 0.

Keys, and the values of headers that carry credentials, are never printed.
Certificates are checked against the system's roots; SSL_CERT_FILE=ca.pem trusts another.

Exit codes:
  0  conforms: no check failed, and at least one passed (with --strict: none was inconclusive)
  1  does not conform, or no check could be passed
  2  wrong usage, or the endpoint cannot be used: nothing was verified. The reports of --format json,
     junit and markdown say so too

Examples:
  onlyonce verify http://127.0.0.1:8080/orders
  onlyonce verify https://api.example.org/v1/charges --profile stripe \\
      --header \"Authorization: Bearer $TOKEN\" --other-header \"Authorization: Bearer $OTHER\" \\
      --content-type application/x-www-form-urlencoded --body @charge.txt
  onlyonce verify http://127.0.0.1:8080/orders --only replay,mismatch --json
  onlyonce verify http://127.0.0.1:8080/orders --config onlyonce.toml --format junit > verify.xml
  onlyonce verify --explain runs-again
  onlyonce verify http://127.0.0.1:8080/orders --watch --every 60s --only replay,marks";

/// What can be said on the command line. Headers are read later, and there is no `Debug`: an error
/// must not show a credential.
#[derive(clap::Args)]
#[command(after_long_help = EXPLAINED)]
pub struct Args {
    /// The endpoint, http or https; best one that answers something new each time it runs
    #[arg(required_unless_present_any = ["list", "explain"])]
    pub url: Option<String>,

    /// Whose promises to hold the endpoint to
    /// [default: standard]
    #[arg(long, short, value_parser = profiles())]
    pub profile: Option<Preset>,

    /// A gateway's file with settings: hold the endpoint to what that file says for it
    #[arg(long, value_name = "FILE", conflicts_with = "profile")]
    pub config: Option<PathBuf>,

    /// Whether the endpoint needs a key [default: as the profile or file says]
    #[arg(long, value_name = "NEED")]
    pub key: Option<Need>,

    /// How to call the endpoint
    #[arg(long, short = 'X', default_value = "POST")]
    pub method: Method,

    /// What to send: JSON, or a file (`@FILE` if it could be taken for JSON)
    #[arg(long, value_name = "FILE|JSON")]
    pub body: Option<String>,

    /// Another payload, for reusing a key [default: the body, changed a little]
    #[arg(long, value_name = "FILE|JSON")]
    pub other_body: Option<String>,

    /// The body's type [default: application/json, or application/octet-stream if it is none]
    #[arg(long, value_name = "TYPE")]
    pub content_type: Option<HeaderValue>,

    /// A header to send along, such as 'Authorization: Bearer …'; may be repeated
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE")]
    pub headers: Vec<String>,

    /// A header that makes the request another caller's, instead of --header; may be repeated
    #[arg(long = "other-header", value_name = "NAME: VALUE")]
    pub other_headers: Vec<String>,

    /// The header that carries the key [default: the profile's]
    #[arg(long, value_name = "NAME")]
    pub key_header: Option<HeaderName>,

    /// A similar but slow endpoint of the same server (about 300 ms): shows what happens while a
    /// request runs
    #[arg(long, value_name = "PATH")]
    pub slow_path: Option<String>,

    /// How many duplicates to send at once
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(2..=256))]
    pub concurrency: u16,

    /// Run only these checks
    #[arg(long, value_name = "CHECK,…", value_delimiter = ',')]
    pub only: Vec<String>,

    /// Leave these checks out
    #[arg(long, value_name = "CHECK,…", value_delimiter = ',')]
    pub skip: Vec<String>,

    /// List the checks and what each proves
    #[arg(long)]
    pub list: bool,

    /// Explain a code of a report: the name of a cause or of a check
    #[arg(long, value_name = "CODE", exclusive = true)]
    pub explain: Option<String>,

    /// How to write the report
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: Format,

    /// The same as --format json; with --watch, one object per line
    #[arg(long, conflicts_with = "format")]
    pub json: bool,

    /// Count inconclusive checks as not conforming
    #[arg(long)]
    pub strict: bool,

    /// Repeat until stopped, one line per round
    #[arg(long)]
    pub watch: bool,

    /// How often to repeat, from start to start
    #[arg(long, value_name = "TIME", default_value = "60s", requires = "watch", value_parser = humantime::parse_duration)]
    pub every: Duration,

    /// How long to wait for each answer
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = humantime::parse_duration)]
    pub timeout: Duration,
}

/// Whether a request needs a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Need {
    /// Without a key it is refused
    Required,
    /// Without a key it passes through
    Optional,
}

impl From<Need> for KeyNeed {
    fn from(need: Need) -> Self {
        match need {
            Need::Required => Self::Required,
            Need::Optional => Self::Optional,
        }
    }
}

/// How a report is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people at a terminal
    Text,
    /// For a comment, a ticket or a job summary
    Markdown,
    /// For CI systems that show tests
    Junit,
    /// For programs; has everything
    Json,
}

impl Args {
    /// How the report is written.
    pub(crate) fn format(&self) -> Format {
        if self.json { Format::Json } else { self.format }
    }
}

fn profiles() -> impl TypedValueParser<Value = Preset> {
    PossibleValuesParser::new(Preset::ALL.map(|profile| profile.name()))
        .try_map(|name| name.parse::<Preset>())
}

/// A header as it is typed: `Name: value`. It has no `Debug`: its value may be a credential.
#[derive(Clone)]
pub(crate) struct HeaderLine {
    pub(crate) name: HeaderName,
    pub(crate) value: HeaderValue,
}

impl FromStr for HeaderLine {
    type Err = &'static str;

    fn from_str(line: &str) -> Result<Self, Self::Err> {
        let (name, value) = line
            .split_once(':')
            .ok_or("write a header as 'Name: value'")?;
        Ok(Self {
            name: name
                .trim()
                .parse()
                .map_err(|_| "the header's name has a character that names cannot have")?,
            value: HeaderValue::from_str(value.trim())
                .map_err(|_| "the header's value has a character that values cannot have")?,
        })
    }
}
