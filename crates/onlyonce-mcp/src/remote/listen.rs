//! The stream on which a server says something on its own.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::ACCEPT;
use http::{HeaderValue, Method, Response};
use http_body_util::BodyExt;

use super::{Peer, bytes_max};
use crate::exchange::{AnswerBody, EVENT_STREAM, LAST_EVENT_ID, is_stream};
use crate::message::each;
use crate::sse::Events;

/// The pause before it is opened again.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

impl Peer {
    /// Hears what the server says on its own, for as long as it keeps a stream for that.
    pub(super) fn listen(self: &Arc<Self>) {
        let peer = Arc::clone(self);
        let task = tokio::spawn(async move { peer.hear().await });
        if let Some(former) = self.state().listener.replace(task.abort_handle()) {
            former.abort();
        }
    }

    async fn hear(&self) {
        let mut last_id: Option<String> = None;
        let mut pause = PAUSE;
        loop {
            let mut request = self.request(Method::GET, Bytes::new());
            let headers = request.headers_mut();
            self.state().name_session(headers);
            headers.insert(ACCEPT, HeaderValue::from_static(EVENT_STREAM));
            if let Some(Ok(last_id)) = last_id.as_deref().map(HeaderValue::from_str) {
                headers.insert(LAST_EVENT_ID, last_id);
            }
            match self.remote.http.send(request).await {
                Ok(answer) if answer.status().is_success() && is_stream(answer.headers()) => {
                    pause = self.hear_stream(answer, &mut last_id).await;
                }
                // It has no such stream, or not for this session.
                Ok(_) => return,
                Err(_) => pause = (pause * 2).min(PAUSE_MAX),
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Returns how long to wait before it is opened again.
    async fn hear_stream(
        &self,
        answer: Response<AnswerBody>,
        last_id: &mut Option<String>,
    ) -> Duration {
        let mut events = Events::new(bytes_max());
        let mut body = answer.into_body();
        while let Some(Ok(frame)) = body.frame().await {
            let heard = frame.data_ref().map(|piece| events.feed(piece));
            let Some(Ok(heard)) = heard else { break };
            for event in heard {
                *last_id = event.id.or(last_id.take());
                for message in event.data.map(each).unwrap_or_default() {
                    self.session.server_said(message).await;
                }
            }
        }
        events.retry().unwrap_or(PAUSE).min(PAUSE_MAX)
    }
}
