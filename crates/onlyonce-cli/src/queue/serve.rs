//! `onlyonce queue serve`: sends what is due for as long as it runs, and takes requests from programs over
//! a socket of this user or over loopback HTTP.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use axum::Router;
use onlyonce_client::Queue;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use super::api::router;
use super::deliver::{Options, line};
use super::guard::Guard;
use super::wanted::wrong;
use super::{CommandError, socket};
use crate::mcp::stopped;
use crate::said::{give, say};

/// The socket's name in the queue's folder.
const SOCKET: &str = "socket";

/// Where to listen, and how to send.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
`onlyonce queue add` and all the other commands work beside it: it sees what they add. A program can
also ask it directly, in JSON. Over the socket no token is needed: only this user can open it.

  curl --unix-socket ~/.local/state/onlyonce/queue/socket http://localhost/requests \\
    --json '{\"method\": \"POST\", \"url\": \"https://api.example.org/orders\", \"json\": {\"item\": \"tea\"}}'
  {\"id\":1,\"key\":\"…\",\"new\":true}

  GET /                      how many requests wait, failed and are done
  POST /requests             method, url, headers, json or body (text), key
  GET /requests              ?state=failed&after=17&limit=100
  GET|PUT|DELETE /requests/17, POST /requests/17/retry
  POST /groups, GET /groups/3

Over HTTP it listens on loopback only, refuses web pages of other origins, and asks for the token in
--token-file. Without a token every user and program of this machine can add requests and see the list.

Examples:
  onlyonce queue serve
  onlyonce queue serve --listen 127.0.0.1:7070 --token-file token.txt")]
pub(super) struct Args {
    /// The socket [default: socket in the queue's folder]
    #[arg(long, value_name = "PATH", conflicts_with = "listen")]
    socket: Option<PathBuf>,
    /// Listen over HTTP instead, on a loopback address
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// A file with the token that a program must send
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
}

/// Runs until it is told to stop.
pub(super) async fn serve(
    folder: &Path,
    args: &Args,
    json: bool,
) -> Result<ExitCode, CommandError> {
    if args.listen.is_some_and(|it| !it.ip().is_loopback()) {
        let why = "--listen takes a loopback address, like 127.0.0.1:7070: anybody who reaches it can have requests sent";
        return Err(wrong(why));
    }
    let stop = stopped().map_err(CommandError::io("signals cannot be awaited"))?;
    let queue = args.options.open(folder).await?;
    queue.observe(move |attempted| give(format_args!("{}", line(attempted, json))));
    let (ready, is_ready) = oneshot::channel();
    let running = queue.run_with(move || {
        // Its waiting callers go together with this.
        let _ = ready.send(());
    });
    let answering = async {
        // Only the one that sends answers; if it cannot send, that ends it.
        if is_ready.await.is_err() {
            std::future::pending::<()>().await;
        }
        answer(&queue, folder, args).await
    };
    tokio::select! {
        ended = running => match ended? {},
        answered = answering => answered?,
        () = stop => {}
    }
    Ok(ExitCode::SUCCESS)
}

async fn answer(queue: &Queue, folder: &Path, args: &Args) -> Result<(), CommandError> {
    let guard = |bound| Guard::new(bound, args.token_file.as_deref());
    let ended = || CommandError::io("nothing more can be taken in");
    if let Some(address) = args.listen {
        let cannot = || CommandError::io(format!("{address} cannot be listened on"));
        let listener = TcpListener::bind(address).await.map_err(cannot())?;
        let bound = listener.local_addr().map_err(cannot())?;
        let app: Router = router(queue.clone(), guard(Some(bound))?);
        say(format_args!("the queue listens on http://{bound}"));
        return axum::serve(listener, app).await.map_err(ended());
    }
    let path = args.socket.clone();
    let path = path.unwrap_or_else(|| folder.join(SOCKET));
    let app = router(queue.clone(), guard(None)?);
    let cannot = CommandError::io(format!("{} cannot be listened on", path.display()));
    let (listener, _file) = socket::listen(&path).await.map_err(cannot)?;
    say(format_args!("the queue listens on {}", path.display()));
    axum::serve(listener, app).await.map_err(ended())
}
