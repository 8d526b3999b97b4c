//! A client that is still sending does not read: if its connection is closed under it, the answer is
//! lost with the rest of the request. So the rest of a refused body is read, within bounds, and thrown
//! away, while the answer is on its way.

use std::time::Duration;

use bytes::Buf as _;
use http::HeaderMap;
use http::header::EXPECT;
use http_body::Body;
use http_body_util::BodyExt as _;
use tokio::runtime::Handle;

const LINGER_TIME_MAX: Duration = Duration::from_secs(10);
const LINGER_BYTES_MAX: u64 = 64 << 20;

/// How much of a request's body is still read after its answer was decided, so that a client which
/// sends everything before it reads still gets the answer. Whichever bound comes first ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linger {
    /// For so long; not at all if zero.
    pub time_max: Duration,
    /// So many bytes.
    pub bytes_max: u64,
}

impl Default for Linger {
    /// Ten seconds, 64 MiB.
    fn default() -> Self {
        Self {
            time_max: LINGER_TIME_MAX,
            bytes_max: LINGER_BYTES_MAX,
        }
    }
}

impl Linger {
    /// Not at all.
    pub const NONE: Self = Self {
        time_max: Duration::ZERO,
        bytes_max: 0,
    };

    /// Reads the rest of `body` in a task of its own, and drops it. Needs a tokio runtime; without
    /// one, the body is dropped at once.
    pub fn read_on<B>(self, body: B)
    where
        B: Body + Send + 'static,
    {
        if self.time_max.is_zero() || body.is_end_stream() {
            return;
        }
        if let Ok(runtime) = Handle::try_current() {
            let rest = tokio::time::timeout(self.time_max, discard(body, self.bytes_max));
            // How it ends does not matter: the bound was reached, or the client has gone away.
            runtime.spawn(async move { drop(rest.await) });
        }
    }
}

/// Whether a client waits for leave before it sends its body: nothing is to be read on then, and
/// reading would give that leave.
pub fn waits_for_leave(headers: &HeaderMap) -> bool {
    headers
        .get(EXPECT)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

async fn discard<B: Body>(body: B, bytes_max: u64) {
    let mut body = Box::pin(body);
    let mut bytes = 0;
    while let Some(Ok(frame)) = body.frame().await {
        bytes += frame.data_ref().map_or(0, |data| data.remaining() as u64);
        if bytes > bytes_max {
            return;
        }
    }
}
