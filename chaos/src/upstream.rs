//! The service behind the gateways: it writes every execution down, and answers each differently.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use crate::client::{BULKY, FOREIGN, FOREIGN_HOST};
use crate::failure::Failure;
use crate::history::Execution;
use crate::watch::Watch;

/// Answers differ in length by at most this.
const PADDING_MAX: u64 = 600;
const BULK_BYTES: u64 = 200_000;

/// What was executed so far.
#[derive(Clone)]
pub(crate) struct Ledger {
    executions: Arc<Mutex<Vec<Execution>>>,
    watch: Watch,
}

impl Ledger {
    pub(crate) fn new(watch: Watch) -> Self {
        Self {
            executions: Arc::default(),
            watch,
        }
    }

    /// All that is written down, which is not kept here any longer.
    pub(crate) fn take(&self) -> Vec<Execution> {
        std::mem::take(&mut *self.lock())
    }

    /// Serves one gateway on a free port, as long as the runtime runs.
    pub(crate) async fn serve(&self, ip: Ipv4Addr, gateway: usize) -> Result<SocketAddr, Failure> {
        let cannot = || Failure::doing(format!("listen on a free port of {ip}"));
        let listener = TcpListener::bind((ip, 0)).await.map_err(cannot())?;
        let address = listener.local_addr().map_err(cannot())?;
        let ledger = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                drop(stream.set_nodelay(true));
                let ledger = ledger.clone();
                let answer = service_fn(move |request| ledger.clone().answer(gateway, request));
                let served = http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
                // A gateway that dies is no event here.
                tokio::spawn(async move { drop(served.await) });
            }
        });
        Ok(address)
    }

    async fn answer(
        self,
        gateway: usize,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, Infallible> {
        let key = request.headers().get("idempotency-key");
        let key = key.and_then(|key| key.to_str().ok()?.rsplit('-').next()?.parse().ok());
        let is_foreign =
            request.headers().get("host") == Some(&HeaderValue::from_static(FOREIGN_HOST));
        let key = key.map(|key: u64| if is_foreign { FOREIGN + key } else { key });
        let body = request.into_body().collect().await;
        let body = body.map(|body| body.to_bytes()).unwrap_or_default();
        let work = std::str::from_utf8(&body)
            .ok()
            .and_then(|it| it.parse().ok());
        let (Some(key), Some(work)) = (key, work) else {
            let mut response = Response::new(Full::from("no key, or no work to do"));
            *response.status_mut() = StatusCode::BAD_REQUEST;
            return Ok(response);
        };

        let number = self.start(key, gateway);
        // In a task of its own: it goes on when the gateway dies.
        let working = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(work)).await;
            self.end(number);
        });
        drop(working.await);
        let mut response = Response::new(Full::from(answer(key, number)));
        *response.status_mut() = StatusCode::CREATED;
        Ok(response)
    }

    fn start(&self, key: u64, gateway: usize) -> u64 {
        let mut executions = self.lock();
        let number = executions.len() as u64;
        executions.push(Execution {
            number,
            key,
            gateway,
            started: self.watch.now(),
            ended: None,
        });
        number
    }

    fn end(&self, number: u64) {
        let now = self.watch.now();
        let index = usize::try_from(number).unwrap_or(usize::MAX);
        if let Some(execution) = self.lock().get_mut(index) {
            execution.ended = Some(now);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Execution>> {
        self.executions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn answer(key: u64, number: u64) -> String {
    let length = if (BULKY..FOREIGN).contains(&key) {
        BULK_BYTES
    } else {
        number * 37 % PADDING_MAX
    };
    let mut text = format!("key {key} execution {number} ");
    // Signs that no compression makes shorter by much.
    let mut state = number;
    let signs = (0..length).map(|_| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
        char::from(b'0' + (state >> 58) as u8)
    });
    text.extend(signs);
    text
}

/// The execution that made this answer to this key, if one can have made it.
pub(crate) fn made_by(key: u64, body: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(body).ok()?;
    let number = text.split(' ').nth(3)?.parse().ok()?;
    (answer(key, number) == text).then_some(number)
}
