//! The service behind the gateway: it reads the request and answers 200 bytes at once.

use std::convert::Infallible;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use crate::failure::Failure;

static BODY: [u8; 200] = [b'r'; 200];

pub(crate) struct Upstream {
    port: u16,
}

impl Upstream {
    /// Serves as long as the runtime runs.
    pub(crate) async fn start() -> Result<Self, Failure> {
        let cannot = || Failure::doing("listen on a free port");
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(cannot())?;
        let port = listener.local_addr().map_err(cannot())?.port();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // Without it every answer would wait for the last one to be acknowledged.
                drop(stream.set_nodelay(true));
                let served = http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service_fn(answer));
                // A proxy that goes away is no event.
                tokio::spawn(async move { drop(served.await) });
            }
        });
        Ok(Self { port })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    drop(request.into_body().collect().await);
    let mut response = Response::new(Full::from(Bytes::from_static(&BODY)));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    Ok(response)
}
