//! Pages that show what the store has to look for. A large store may take a while, so a page that is not
//! whole soon comes without: its frame at once, so that it can be seen and searched again, and what was
//! found when it is there. It needs no script for that.

use std::convert::Infallible;
use std::future::ready;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, StreamExt as _};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use maud::{Markup, PreEscaped, html};

use super::super::Admin;
use super::layout::{HTML, Place};

/// How long a page waits to be whole. Half of the time in which its first paint should be there.
const WHOLE_WITHIN: Duration = Duration::from_millis(100);
/// Where the rest of a page goes. Nothing that is shown can contain it: angle brackets are escaped.
const REST: &str = "<!--rest-->";

impl Admin {
    /// A page that begins with `lead` and goes on with `rest`. Its status is that of `rest` if that is
    /// there soon, and else 200, whatever becomes of it: then the page says so.
    pub(super) async fn framed_soon(
        &self,
        place: Place,
        title: &str,
        lead: Markup,
        rest: impl Future<Output = (StatusCode, Markup)> + Send + 'static,
    ) -> Response {
        let mut rest = Box::pin(rest);
        if let Ok((status, rest)) = tokio::time::timeout(WHOLE_WITHIN, &mut rest).await {
            let content = html! { (lead) (rest) };
            let page = self.framed(place, title, Ok(content));
            return page.with_status(status).into_response();
        }
        let content = html! {
            (lead)
            p.dim.looking role="status" { "The store is looking; this takes a while." }
            (PreEscaped(REST))
        };
        let page = self.framed(place, title, Ok(content)).into_text();
        let (begin, end) = page.split_once(REST).unwrap_or((page.as_str(), ""));
        let (begin, end) = (begin.to_owned(), end.to_owned());
        let rest = stream::once(async move {
            let (_, rest) = rest.await;
            rest.into_string() + &end
        });
        let parts = stream::once(ready(begin)).chain(rest);
        let body = Body::from_stream(parts.map(Ok::<_, Infallible>));
        ([(CONTENT_TYPE, HTML)], body).into_response()
    }
}
