//! `onlyonce mcp --listen`: clients on streamable HTTP before servers on pipes, which it starts itself.

use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;
use futures_util::FutureExt as _;
use http::StatusCode;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use onlyonce_mcp::{Bounds, Ended, Front, Proxy, Servers, Started};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use self::guard::Guard;
use super::{Args, McpError, end, start};
use crate::said::{failed, say};

mod guard;

pub(super) use self::guard::BadToken;

const PATH: &str = "/mcp";
/// The largest message of a client. Files travel in messages.
const MESSAGE_BYTES_MAX: usize = 32 << 20;
/// How long a client may take to send one.
const MESSAGE_WAIT_MAX: Duration = Duration::from_secs(30);
/// Messages that are read at a time.
const READING_MAX: usize = 64;
/// What each server's streams hold for clients that do not read.
const HELD_BYTES_MAX: usize = 64 << 20;
/// How long answers may still take on their way to clients once everything has ended.
const GOODBYE_MAX: Duration = Duration::from_secs(5);

/// The command that each server is started with.
struct Commands(Vec<OsString>);

impl Servers for Commands {
    fn start(&self) -> io::Result<Started> {
        let mut server = start(&self.0).map_err(|error| {
            // The client hears only that it could not be started.
            let _ = failed(&error);
            io::Error::other(error)
        })?;
        let (output, input) = (server.stdout.take(), server.stdin.take());
        Ok(Started {
            output: Box::new(output.expect("it is a pipe")),
            input: Box::new(input.expect("it is a pipe")),
            end: Box::new(move |ended| {
                async move {
                    let status = end(&mut server).await;
                    match (ended, status) {
                        (_, Err(error)) => {
                            let _ = failed(&error);
                        }
                        (Ended::Server, Ok(status)) => {
                            say(format_args!("onlyonce: a server has ended: {status}"));
                        }
                        (Ended::Client, Ok(_)) => {}
                    }
                }
                .boxed()
            }),
        })
    }
}

/// What every request needs.
#[derive(Clone)]
struct Here {
    front: Front,
    guard: Arc<Guard>,
    reading: Arc<Semaphore>,
}

/// Answers clients at `address` until `stop` returns.
pub(super) async fn serve(
    args: &Args,
    address: SocketAddr,
    proxy: Proxy,
    stop: impl Future<Output = ()>,
) -> Result<(), McpError> {
    if !address.ip().is_loopback() && args.token_file.is_none() {
        return Err(McpError::Unprotected { address });
    }
    let cannot = |source| McpError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(cannot)?;
    let bound = listener.local_addr().map_err(cannot)?;
    let guard = Guard::new(bound, &args.host, &args.origin, args.token_file.as_deref())?;
    let bounds = Bounds {
        servers_max: args.servers_max.into(),
        idle: args.idle.into(),
        held_bytes_max: HELD_BYTES_MAX,
        is_one_conversation: args.conversation.is_some(),
    };
    let front = Front::new(proxy, Commands(args.command.clone()), bounds);
    let here = Here {
        front: front.clone(),
        guard: Arc::new(guard),
        reading: Arc::new(Semaphore::new(READING_MAX)),
    };
    let app = Router::new().route(PATH, any(answer)).with_state(here);
    say(format_args!("onlyonce: listening on http://{bound}{PATH}"));

    let stopped = CancellationToken::new();
    let serving =
        axum::serve(listener, app).with_graceful_shutdown(stopped.clone().cancelled_owned());
    let mut serving = tokio::spawn(serving.into_future());
    tokio::select! {
        () = stop => {}
        ended = &mut serving => return ended.map_err(io::Error::other)?.map_err(cannot),
    }
    stopped.cancel();
    front.shutdown().await;
    // A client that does not take its answer is not waited for.
    if tokio::time::timeout(GOODBYE_MAX, &mut serving)
        .await
        .is_err()
    {
        serving.abort();
    }
    Ok(())
}

async fn answer(State(here): State<Here>, request: Request) -> Response {
    let caller = match here.guard.admit(&request) {
        Ok(caller) => caller,
        Err(denied) => return denied.into_response(),
    };
    let (parts, body) = request.into_parts();
    let Ok(place) = here.reading.acquire().await else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    let read = Limited::new(body, MESSAGE_BYTES_MAX).collect();
    let body = match tokio::time::timeout(MESSAGE_WAIT_MAX, read).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let why = format!("a message has at most {MESSAGE_BYTES_MAX} bytes");
            return (StatusCode::PAYLOAD_TOO_LARGE, why).into_response();
        }
        Ok(Err(_)) => return StatusCode::BAD_REQUEST.into_response(),
        Err(_) => return StatusCode::REQUEST_TIMEOUT.into_response(),
    };
    drop(place);
    let request = http::Request::from_parts(parts, body);
    here.front.answer(request, caller).await.map(Body::new)
}
