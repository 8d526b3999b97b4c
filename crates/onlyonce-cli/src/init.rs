//! `onlyonce init`: a first file with settings for a service, commented and checked. An existing
//! file is never overwritten: with `--force` it is kept under another name.

use std::fs::{self, OpenOptions};
use std::io::{self, BufRead as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use onlyonce_gateway::config::{self, ConfigError};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::said::{failed, give, say};

/// What is written, with a place for each answer.
const TEMPLATE: &str = include_str!("init/onlyonce.toml");
/// How long the service may take to answer a connection; it need not run yet.
const CONNECT_MAX: Duration = Duration::from_secs(2);
const STORE: &str = "file:./onlyonce-data";
const LISTEN: &str = "127.0.0.1:8080";
const ADMIN: &str = "127.0.0.1:9090";
/// A store's URL may hold a password.
const OWNER_ONLY: u32 = 0o600;
/// In a folder that hands its group down, that group is meant to read what is in it.
const OWNER_AND_GROUP: u32 = 0o640;
const SET_GROUP_ID: u32 = 0o2000;

/// What the file should say. Without `--upstream`, it is asked for.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  onlyonce init --upstream http://127.0.0.1:3000
  onlyonce init --upstream http://127.0.0.1:3000 --store redis://127.0.0.1 --key required
  onlyonce init --upstream http://127.0.0.1:3000 --mode observe
  onlyonce init --upstream http://127.0.0.1:3000 --output /etc/onlyonce/onlyonce.toml

Without --upstream it asks for the service, the store and whether keys are required.
Only its owner can read the file (and the group of a folder that hands its group down).")]
pub struct Args {
    /// The service to protect: http://127.0.0.1:3000
    #[arg(long, value_name = "URL")]
    upstream: Option<String>,
    /// Where to listen
    #[arg(long, value_name = "ADDRESS", default_value = LISTEN)]
    listen: String,
    /// Where operators reach it
    #[arg(long, value_name = "ADDRESS", default_value = ADMIN)]
    admin: String,
    /// The store's URL [default: file:./onlyonce-data]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// The profile: see `onlyonce profiles`
    #[arg(long, value_name = "NAME", default_value_t = onlyonce_core::profile::usual().name().to_owned())]
    profile: String,
    /// Whether a request that changes something needs a key [default: as the profile says]
    #[arg(long, value_name = "NEED")]
    key: Option<Need>,
    /// What becomes of requests
    #[arg(long, value_enum, default_value_t = Mode::Enforce)]
    mode: Mode,
    /// The file to write; - for stdout
    #[arg(long, short, value_name = "FILE", default_value = "onlyonce.toml")]
    output: PathBuf,
    /// Replace a file that is there; the old one is kept as FILE.old
    #[arg(long)]
    force: bool,
}

/// What becomes of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// Each keyed request runs once
    Enforce,
    /// All pass, and what enforcing would do is counted
    Observe,
}

/// Whether a request needs a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Need {
    /// Without a key it is refused
    Required,
    /// Without a key it passes through
    Optional,
}

/// Why there is no file.
#[derive(Debug, Error)]
enum InitError {
    #[error("nothing was answered: give --upstream, as in --upstream http://127.0.0.1:3000")]
    NoAnswer,
    #[error("answer {0:?}: write yes or no")]
    YesOrNo(String),
    #[error("{0} is there already: choose another --output, or --force keeps it as {0}.old")]
    Exists(String),
    #[error("{0}.old is there already: move it away first")]
    OldExists(String),
    #[error("{0} cannot be written")]
    Write(String, #[source] io::Error),
    #[error("these settings do not hold\n{0}")]
    Settings(ConfigError),
}

/// Writes the file; returns the exit code.
pub async fn run(args: &Args) -> ExitCode {
    match init(args) {
        Ok(upstream) => {
            reach(&upstream).await;
            ExitCode::SUCCESS
        }
        Err(error) => failed(&error),
    }
}

/// What was asked for or given.
struct Answers {
    upstream: String,
    store: String,
    key: Option<Need>,
}

fn init(args: &Args) -> Result<String, InitError> {
    let is_stdout = args.output == Path::new("-");
    // Before any question: a person should not answer in vain.
    if !is_stdout && args.output.exists() && !args.force {
        return Err(InitError::Exists(args.output.display().to_string()));
    }
    let answers = match &args.upstream {
        Some(upstream) => Answers {
            upstream: upstream.clone(),
            store: args.store.clone().unwrap_or_else(|| STORE.to_owned()),
            key: args.key,
        },
        None => ask(args)?,
    };
    let text = written(args, &answers);
    let name = args.output.display().to_string();
    config::read(&name, &text).map_err(InitError::Settings)?;
    if is_stdout {
        give(format_args!("{}", text.trim_end()));
        return Ok(answers.upstream);
    }
    write(&args.output, &text, args.force)?;
    say(format_args!(
        "{name} is written and holds\nstart it: onlyonce gateway --config {name}"
    ));
    Ok(answers.upstream)
}

/// Asks for what has no good default.
fn ask(args: &Args) -> Result<Answers, InitError> {
    let upstream = question("Which service should be protected (http://127.0.0.1:3000)? ")?;
    if upstream.is_empty() {
        return Err(InitError::NoAnswer);
    }
    let store = match &args.store {
        Some(store) => store.clone(),
        None => question(&format!("Where should answers be kept [{STORE}]? "))?,
    };
    let key = match args.key {
        Some(key) => Some(key),
        None => match question("Must every request that changes something have a key [no]? ")?
            .to_ascii_lowercase()
            .as_str()
        {
            "" | "n" | "no" => None,
            "y" | "yes" => Some(Need::Required),
            other => return Err(InitError::YesOrNo(other.to_owned())),
        },
    };
    Ok(Answers {
        upstream,
        store: if store.is_empty() {
            STORE.to_owned()
        } else {
            store
        },
        key,
    })
}

fn question(words: &str) -> Result<String, InitError> {
    drop(write!(io::stderr(), "{words}"));
    let mut answer = String::new();
    match io::stdin().lock().read_line(&mut answer) {
        Ok(0) | Err(_) => Err(InitError::NoAnswer),
        Ok(_) => Ok(answer.trim().to_owned()),
    }
}

/// The template with the answers in it, each as a TOML value.
fn written(args: &Args, answers: &Answers) -> String {
    let value = |text: &str| toml::Value::from(text).to_string();
    let key = match answers.key {
        Some(Need::Required) => "key = \"required\"",
        Some(Need::Optional) => "key = \"optional\"",
        None => "# key = \"required\"",
    };
    let mode = match args.mode {
        Mode::Observe => "mode = \"observe\"",
        Mode::Enforce => "# mode = \"observe\"",
    };
    TEMPLATE
        .replace("@MODE@", mode)
        .replace("@UPSTREAM@", &value(&answers.upstream))
        .replace("@LISTEN@", &value(&args.listen))
        .replace("@ADMIN@", &value(&args.admin))
        .replace("@STORE@", &value(&answers.store))
        .replace("@PROFILE@", &value(&args.profile))
        .replace("@KEY@", key)
}

fn write(path: &Path, text: &str, force: bool) -> Result<(), InitError> {
    let name = path.display().to_string();
    if force && path.exists() {
        let old = PathBuf::from(format!("{name}.old"));
        if old.exists() {
            return Err(InitError::OldExists(name));
        }
        fs::rename(path, &old).map_err(|error| InitError::Write(name.clone(), error))?;
        say(format_args!("the former file is now {}", old.display()));
    }
    let created = OpenOptions::new()
        .write(true)
        // Fails if somebody else was quicker.
        .create_new(true)
        .mode(mode_in(path))
        .open(path);
    created
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|error| {
            if error.kind() == io::ErrorKind::AlreadyExists {
                InitError::Exists(name)
            } else {
                InitError::Write(name, error)
            }
        })
}

fn mode_in(path: &Path) -> u32 {
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    let folder = fs::metadata(folder.unwrap_or(Path::new(".")));
    match folder {
        Ok(folder) if folder.mode() & SET_GROUP_ID != 0 => OWNER_AND_GROUP,
        Ok(_) | Err(_) => OWNER_ONLY,
    }
}

/// Says whether the service is there. It need not be: the gateway answers 502 until it is.
async fn reach(upstream: &str) {
    let Some(address) = address(upstream) else {
        return;
    };
    match timeout(CONNECT_MAX, TcpStream::connect(&address)).await {
        Ok(Ok(_)) => say(format_args!("the service at {address} can be reached")),
        Ok(Err(error)) => say(format_args!("note: the service at {address}: {error}")),
        Err(_) => say(format_args!(
            "note: the service at {address} does not answer"
        )),
    }
}

fn address(upstream: &str) -> Option<String> {
    // `h2c` is HTTP/2 without TLS; its port is that of HTTP.
    let url = url::Url::parse(&upstream.replacen("h2c:", "http:", 1)).ok()?;
    let host = url.host_str()?;
    Some(format!("{host}:{}", url.port_or_known_default()?))
}
