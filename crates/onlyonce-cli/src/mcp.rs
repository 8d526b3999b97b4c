//! `onlyonce mcp`: stands between an MCP server, which it starts or reaches over the network, and the
//! client on stdin and stdout, or clients over HTTP.
//! Stdout is the protocol's; whatever is to be said goes to stderr.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use clap::ValueEnum;
use http::Uri;
use onlyonce_core::{Engine, Entropy as _, OnLapse, OsEntropy, StoreError};
use onlyonce_mcp::{
    Background, Derive, Ended, Errors, OnCancel, PatternError, Proxy, Rules, Tools, Verify,
};
use thiserror::Error;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

use crate::said::{FAILED, failed, say};
use crate::stdin;

pub(crate) mod default_store;
mod listen;
mod network;

/// How often calls in doubt may be looked for.
const BACKGROUND_MIN: Duration = Duration::from_secs(1);
const BACKGROUND_MAX: Duration = Duration::from_secs(60 * 60);
/// How long a server may take to end once its input has.
const END_MAX: Duration = Duration::from_secs(5);

/// Which server, and how its calls are made to run once.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Put it before the server's command, wherever your client starts the server:
  before:  npx -y @modelcontextprotocol/server-filesystem ~/notes
  after:   onlyonce mcp -- npx -y @modelcontextprotocol/server-filesystem ~/notes
A server on the network (streamable HTTP):
  onlyonce mcp --upstream https://example.org/mcp --header 'Authorization: Bearer ${TOKEN}'
The other way round, clients over streamable HTTP and the server a command:
  onlyonce mcp --listen 127.0.0.1:8000 -- ./billing-server        at http://127.0.0.1:8000/mcp

Every tool that is not read-only gets an optional argument idempotencyKey, and says how to use it:
the same key for a retry, a new one for a new action. A retry gets the first result, also after a
crash or a restart. The key is read from the arguments or from _meta, and never reaches the server.

If a call's answer is lost (the server or this program died), it is unknown whether it took effect.
It is then not run again: the model is asked to find out first. --on-lapse rerun runs it again.
An operator can also decide:
  onlyonce keys list --state unknown --store URL
  onlyonce keys resolve SLOT --status 200 --body 'the note was saved' --store URL
  onlyonce keys forget SLOT --store URL

A client that cancels a call with a key stops it: the server is told, and unless it answers within ten
seconds the outcome is unknown. Many clients also cancel what they have waited for too long: with
--on-cancel leave such a call goes on, and a retry gets its result.

A call without a key that names the call of its model in _meta (Claude Code does: claudecode/toolUseId)
has that name as its key: when it is sent again it meets its first try, also with other arguments.
--call-id NAME adds a member of _meta that does the same; --call-id none takes those that are known away, for
a client that sends one call under two names: with --derive the two are then one call by what they mean.

--reconcile TOOL=VERIFYING_TOOL:ARGUMENTS finds out whether a call happened whose answer was lost. In
the arguments stand {operation} (a stable id of the call, which the server gets with the call as
onlyonce/operation in _meta and must keep), {/pointer} into the call's own arguments, and {key} (only
where the client also puts it into an argument: the server gets it in no other way). An answer with
something in it is a yes and becomes the call's result; null or [] is a no, and the call runs; anything
else cannot tell, and nothing runs. ;at=/pointer says where to look in the answer, ;absent=TEXT which
error means no. --background 1m does the same when nobody retries, but runs nothing; it needs --name, by
which it knows this server's calls from those of others on the store.

--listen starts the command once for each session, so that no client hears of another; requests of the
revisions without sessions (2026-07-28) share one with no one but their own caller. Callers are told
apart by their Authorization header. A client that goes away stops no call with a key. --token-file has one token a line;
each is a caller of its own, and without one of them nobody is let in. Other machines reach it only with
that; it speaks plain HTTP, so put TLS before it. Web pages are let in only from --origin.

--derive makes a key for calls without one and without a name of their own: the same tool and arguments, in the same conversation
and within its window, are one call. That is a guess: a model that means to do the same thing twice
within the window gets the first result again, with a note that says so.

Examples:
  onlyonce mcp --store redis://127.0.0.1 --name billing -- ./billing-server
  onlyonce mcp --tools 'create_*' --except '*_draft' --ttl 48h -- ./billing-server
  onlyonce mcp --reconcile 'pay=get_payment:{\"ref\":\"{operation}\"};absent=not found' -- ./billing-server
  onlyonce mcp --derive=2m -- ./billing-server
  onlyonce mcp --listen 0.0.0.0:8000 --token-file tokens.txt -- ./billing-server")]
pub struct Args {
    /// Where results are kept [default: sqlite: in $XDG_STATE_HOME/onlyonce, or ~/.local/state/onlyonce]
    #[arg(
        long,
        value_name = "URL",
        env = "ONLYONCE_MCP_STORE",
        hide_env_values = true
    )]
    store: Option<String>,
    /// What the server is called: its keys are kept apart from other servers' [default: its command]
    #[arg(long)]
    name: Option<String>,
    /// How long a result is kept
    #[arg(long, default_value = "24h")]
    ttl: humantime::Duration,
    /// What to do with a call whose outcome is unknown
    #[arg(long, value_enum, default_value_t = Lapse::Hold)]
    on_lapse: Lapse,
    /// What a retry gets when the tool's answer was an error
    #[arg(long, value_enum, default_value_t = OnError::Replay)]
    errors: OnError,
    /// What a client that cancels a call with a key means by it
    #[arg(long, value_enum, default_value_t = Cancel::Stop)]
    on_cancel: Cancel,
    /// Make keys for calls without one; equal calls within WINDOW are one [default WINDOW: 10m]
    #[arg(
        long,
        value_name = "WINDOW",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "10m"
    )]
    derive: Option<humantime::Duration>,
    /// The conversation that made keys belong to [default: a new one each start, or each session]
    #[arg(long, value_name = "ID", requires = "derive")]
    conversation: Option<String>,
    /// Cover only tools whose name matches, like 'create_*'; may be repeated
    #[arg(long, value_name = "GLOB")]
    tools: Vec<String>,
    /// Do not cover tools whose name matches; may be repeated
    #[arg(long, value_name = "GLOB")]
    except: Vec<String>,
    /// A member of _meta in which the client names a call of its model, or `none`; may be repeated
    #[arg(long, value_name = "NAME")]
    call_id: Vec<String>,
    /// How to find out whether a call happened whose answer was lost; may be repeated
    #[arg(long, value_name = "TOOL=VERIFYING_TOOL:ARGUMENTS")]
    reconcile: Vec<Verify>,
    /// Find it out also when nobody retries, this often: by questions with {operation} alone
    #[arg(long, value_name = "TIME", requires_all = ["reconcile", "name"])]
    background: Option<humantime::Duration>,
    /// A server on the network, instead of a command
    #[arg(
        long,
        value_name = "URL",
        conflicts_with = "command",
        required_unless_present = "command"
    )]
    upstream: Option<Uri>,
    /// A header for the server on the network; ${NAME} is taken from the environment; may be repeated
    #[arg(long, value_name = "NAME: VALUE", requires = "upstream")]
    header: Vec<String>,
    /// Listen for clients over HTTP instead of stdin
    #[arg(long, value_name = "ADDRESS", conflicts_with = "upstream")]
    listen: Option<SocketAddr>,
    /// A file with the tokens that clients must send, one a line
    #[arg(long, value_name = "FILE", requires = "listen")]
    token_file: Option<PathBuf>,
    /// A name that clients may ask for, besides localhost; may be repeated
    #[arg(long, value_name = "NAME", requires = "listen")]
    host: Vec<String>,
    /// The origin of a web page that is let in, like `https://app.example.org`; may be repeated
    #[arg(long, value_name = "ORIGIN", requires = "listen")]
    origin: Vec<String>,
    /// Servers that may run at a time
    #[arg(
        long,
        value_name = "COUNT",
        requires = "listen",
        default_value_t = 64,
        value_parser = clap::value_parser!(u16).range(1..=1024)
    )]
    servers_max: u16,
    /// A server that nobody used for this long is ended
    #[arg(long, value_name = "TIME", requires = "listen", default_value = "30m")]
    idle: humantime::Duration,
    /// The server's command and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Lapse {
    /// It is not run again: the model finds out, or an operator decides
    Hold,
    /// It is run again: for tools that may safely run twice
    Rerun,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OnError {
    /// The same error: a tool that failed half-way would do its first half again
    Replay,
    /// Another try
    Rerun,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Cancel {
    /// The tool is to stop: the server is told, and unless it answers the outcome is unknown
    Stop,
    /// It only waits no longer, as after a time-out: the call goes on, and a retry gets its result
    Leave,
}

#[derive(Debug, Error)]
enum McpError {
    #[error(
        "--background cannot ask {asks} about calls of {tool}: a record keeps neither the key nor the \
         arguments of a call; ask by {{operation}} alone"
    )]
    NotKept { tool: String, asks: String },
    #[error("--background takes a time of a second to an hour")]
    Often,
    #[error("a pattern cannot be read")]
    Pattern(#[from] PatternError),
    #[error(transparent)]
    Network(#[from] network::BadServer),
    #[error(transparent)]
    Place(#[from] default_store::NoPlace),
    #[error(transparent)]
    Open(#[from] onlyonce_stores::OpenError),
    #[error(transparent)]
    Engine(#[from] onlyonce_core::engine::OpenError),
    #[error("the server cannot be started: {command}")]
    Start {
        command: String,
        source: std::io::Error,
    },
    #[error("{address} cannot be listened on")]
    Listen {
        address: SocketAddr,
        source: std::io::Error,
    },
    #[error(
        "{address} can be reached from other machines: give --token-file, or listen on a loopback \
         address, like 127.0.0.1:8000"
    )]
    Unprotected { address: SocketAddr },
    #[error(transparent)]
    Token(#[from] listen::BadToken),
    #[error("messages can no longer be passed on")]
    Wire(#[from] std::io::Error),
}

impl Args {
    fn background(&self) -> Result<Option<Background>, McpError> {
        let Some(every) = self.background.map(Duration::from) else {
            return Ok(None);
        };
        if !(BACKGROUND_MIN..=BACKGROUND_MAX).contains(&every) {
            return Err(McpError::Often);
        }
        if let Some(verify) = self.reconcile.iter().find(|it| !it.is_by_operation()) {
            return Err(McpError::NotKept {
                tool: verify.tool().to_owned(),
                asks: verify.asks().to_owned(),
            });
        }
        let failed = |error: &StoreError| {
            say(format_args!(
                "onlyonce: calls in doubt cannot be read, and none is settled now: {error}"
            ));
        };
        Ok(Some(Background { every, failed }))
    }

    fn rules(&self) -> Result<Rules, McpError> {
        Ok(Rules {
            tools: Tools::new(&self.tools, &self.except)?,
            on_lapse: match self.on_lapse {
                Lapse::Hold => OnLapse::Hold,
                Lapse::Rerun => OnLapse::Rerun,
            },
            errors: match self.errors {
                OnError::Replay => Errors::Replay,
                OnError::Rerun => Errors::Rerun,
            },
            on_cancel: match self.on_cancel {
                Cancel::Stop => OnCancel::Stop,
                Cancel::Leave => OnCancel::Leave,
            },
            keep_for: self.ttl.into(),
            reconcile: self.reconcile.clone(),
            background: self.background()?,
            derive: self.derive.map(|within| Derive {
                conversation: self.conversation.clone().unwrap_or_else(new_conversation),
                within: within.into(),
            }),
            call_ids: Rules::call_ids(&self.call_id),
            ..Rules::new(self.name.clone().unwrap_or_else(|| self.server()))
        })
    }

    /// What the server is called where it has no name: its command, or its address.
    fn server(&self) -> String {
        match &self.upstream {
            Some(url) => url.to_string(),
            None => self.command_line(),
        }
    }

    /// The command as one text; its words are kept apart by what no word can hold.
    fn command_line(&self) -> String {
        let words = self.command.iter().map(|word| word.to_string_lossy());
        words.collect::<Vec<_>>().join("\0")
    }
}

fn start(command_line: &[OsString]) -> Result<Child, McpError> {
    let (program, arguments) = command_line
        .split_first()
        .expect("clap asks for one without --upstream");
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    command.spawn().map_err(|source| McpError::Start {
        command: program.to_string_lossy().into_owned(),
        source,
    })
}

fn new_conversation() -> String {
    let mut bytes = [0; 16];
    OsEntropy::new().fill(&mut bytes);
    format!("{:032x}", u128::from_le_bytes(bytes))
}

/// Stands between client and server until one of them goes; returns the exit code.
pub async fn run(args: &Args) -> ExitCode {
    match pass(args).await {
        Ok(code) => code,
        Err(error) => failed(&error),
    }
}

async fn pass(args: &Args) -> Result<ExitCode, McpError> {
    let rules = args.rules()?;
    let store = match &args.store {
        Some(url) => url.clone(),
        None => default_store::url()?,
    };
    let engine = Engine::open(onlyonce_stores::open(&store).await?).await?;
    let code = match (&args.upstream, args.listen) {
        (Some(url), _) => pass_on(args, url, &engine, rules).await,
        (None, Some(address)) => {
            let proxy = Proxy::new(engine.clone(), rules);
            let served = listen::serve(args, address, proxy, stopped()?).await;
            served.map(|()| ExitCode::SUCCESS)
        }
        (None, None) => pass_to_command(args, &engine, rules).await,
    };
    engine.shutdown(END_MAX).await;
    code
}

/// Stands before a server on the network.
async fn pass_on(
    args: &Args,
    url: &Uri,
    engine: &Engine,
    rules: Rules,
) -> Result<ExitCode, McpError> {
    let server = network::server(url, &args.header)?;
    let client_side = (stdin::reader(), tokio::io::stdout());
    let proxy = Proxy::new(engine.clone(), rules);
    proxy.run_remote(client_side, server, stopped()?).await?;
    Ok(ExitCode::SUCCESS)
}

/// Stands before a server that it starts.
async fn pass_to_command(args: &Args, engine: &Engine, rules: Rules) -> Result<ExitCode, McpError> {
    let stop = stopped()?;
    let mut server = start(&args.command)?;
    let (input, output) = (server.stdin.take(), server.stdout.take());
    let server_side = output.zip(input).expect("both are pipes");

    let client_side = (stdin::reader(), tokio::io::stdout());
    let ended = Proxy::new(engine.clone(), rules)
        .run(client_side, server_side, stop)
        .await;
    let status = end(&mut server).await?;
    Ok(match ended? {
        Ended::Client => ExitCode::SUCCESS,
        Ended::Server => {
            say(format_args!("onlyonce: the server has ended: {status}"));
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            code.unwrap_or(FAILED).into()
        }
    })
}

/// Returns when it is time to stop.
pub(crate) fn stopped() -> std::io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// A server whose input has ended should end too; one that does not is ended.
async fn end(server: &mut Child) -> std::io::Result<ExitStatus> {
    if let Ok(status) = tokio::time::timeout(END_MAX, server.wait()).await {
        return status;
    }
    server.start_kill()?;
    server.wait().await
}
