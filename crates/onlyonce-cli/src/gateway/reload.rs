//! `onlyonce gateway reload`: a signal carries no answer, so a service is asked over a socket of its own
//! to read its settings again, and says whether they are in force. The socket is in the folder that a
//! service manager makes for it (`RuntimeDirectory=`); without one there is none, and SIGHUP does it.

use std::fmt::Display;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use thiserror::Error;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};

use crate::said::{failed, say};

/// Where a service manager makes a folder for the service.
const FOLDERS: &str = "RUNTIME_DIRECTORY";
const NAME: &str = "reload.sock";
/// What is answered where the new settings are in force; everything else is why they are not.
const TAKEN: &str = "settings read again\n";
/// How long reading the settings may take.
const ANSWER_MAX: Duration = Duration::from_secs(60);
const ANSWER_BYTES_MAX: u64 = 64 << 10;
/// How long an answer waits for its reader.
const READ_MAX: Duration = Duration::from_secs(1);

/// Where the gateway is asked.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    /// Its socket [default: reload.sock in the service's $RUNTIME_DIRECTORY]
    #[arg(long, value_name = "FILE")]
    socket: Option<PathBuf>,
}

/// Why settings were not read again.
#[derive(Debug, Error)]
enum ReloadError {
    #[error(
        "no folder of a service is known: give --socket, or send SIGHUP to a gateway that is none"
    )]
    NoFolder,
    #[error("no gateway answers at {}", .0.display())]
    Unreachable(PathBuf, #[source] io::Error),
    #[error("the gateway ended, or did not answer in time, and may not have read its settings")]
    Silent(#[source] Option<io::Error>),
    #[error("the old settings stay: {0}")]
    Refused(String),
}

/// Where the gateway is asked to read its settings again.
pub(super) struct Reloads(Option<UnixListener>);

/// One who asked, and waits.
pub(super) struct Asked(UnixStream);

/// The service's own folder.
fn folder() -> Option<PathBuf> {
    let folders = std::env::var(FOLDERS).ok()?;
    let first = folders.split(':').next()?;
    (!first.is_empty()).then(|| PathBuf::from(first))
}

impl Reloads {
    /// Listens, if this is a service with a folder. Only its own user and root can ask.
    pub(super) fn listen() -> io::Result<Self> {
        let Some(folder) = folder() else {
            return Ok(Self(None));
        };
        let path = folder.join(NAME);
        // The one before may have been killed.
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(&path, &error)),
            Ok(()) | Err(_) => {}
        }
        let listener = UnixListener::bind(&path).map_err(|error| at(&path, &error))?;
        std::fs::set_permissions(&path, Permissions::from_mode(0o600))
            .map_err(|error| at(&path, &error))?;
        Ok(Self(Some(listener)))
    }

    /// Returns when somebody asks.
    pub(super) async fn asked(&self) -> Asked {
        let Some(listener) = &self.0 else {
            return std::future::pending().await;
        };
        loop {
            if let Ok((stream, _)) = listener.accept().await {
                return Asked(stream);
            }
            // Out of file descriptors, as a rule: the signal still works.
            tokio::time::sleep(READ_MAX).await;
        }
    }
}

fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

impl Asked {
    /// Says what became of it. Who asked and went away does not hear it.
    pub(super) async fn answer(mut self, reloaded: Result<(), &impl Display>) {
        let text = match reloaded {
            Ok(()) => TAKEN.to_owned(),
            Err(error) => format!("{error}\n"),
        };
        let written = self.0.write_all(text.as_bytes());
        drop(tokio::time::timeout(READ_MAX, written).await);
    }
}

pub(super) async fn run(args: &Args) -> ExitCode {
    match ask(args).await {
        Ok(()) => {
            say(format_args!("{}", TAKEN.trim_end()));
            ExitCode::SUCCESS
        }
        Err(error) => failed(&error),
    }
}

async fn ask(args: &Args) -> Result<(), ReloadError> {
    let known = || folder().map(|folder| folder.join(NAME));
    let socket = args.socket.clone().or_else(known);
    let socket = socket.ok_or(ReloadError::NoFolder)?;
    let stream = UnixStream::connect(&socket).await;
    let stream = stream.map_err(|error| ReloadError::Unreachable(socket, error))?;
    let mut text = String::new();
    let mut limited = stream.take(ANSWER_BYTES_MAX);
    let read = limited.read_to_string(&mut text);
    match tokio::time::timeout(ANSWER_MAX, read).await {
        Err(_) => return Err(ReloadError::Silent(None)),
        Ok(Err(error)) => return Err(ReloadError::Silent(Some(error))),
        Ok(Ok(_)) => {}
    }
    match text.as_str() {
        TAKEN => Ok(()),
        "" => Err(ReloadError::Silent(None)),
        why => Err(ReloadError::Refused(why.trim_end().to_owned())),
    }
}
