//! What a server answered, and what of it says which execution it came from.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LOCATION, CONTENT_TYPE, ETAG, LOCATION};
use http::{HeaderMap, HeaderName};
use onlyonce_core::policy::{BodyMarks, Mark, Policy, ReplayStatus};

use super::json::Members;
use super::payload::essence;

/// A whole answer.
#[derive(Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// From sending the request to the answer's last byte.
    pub(crate) took: Duration,
}

/// What an execution made.
struct Print {
    body: PrintedBody,
    headers: Vec<Option<Vec<u8>>>,
}

#[derive(PartialEq, Eq)]
enum PrintedBody {
    Bytes(Bytes),
    /// Where replays are marked in the body: its members without the marks.
    Members(BTreeMap<String, String>),
}

impl Answer {
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// A header's first line, as text.
    pub(crate) fn header(&self, name: &HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// All lines of a header.
    pub(crate) fn lines(&self, name: &HeaderName) -> Vec<&[u8]> {
        let lines = self.headers.get_all(name).iter();
        lines.map(|value| value.as_bytes()).collect()
    }

    pub(crate) fn content_type(&self) -> String {
        essence(self.header(&CONTENT_TYPE).unwrap_or_default())
    }

    /// The members of the body, where it is said to be JSON and is an object.
    pub(crate) fn members(&self) -> Option<Members> {
        let content_type = self.content_type();
        let is_json = content_type == "application/json" || content_type.ends_with("+json");
        Members::of(&self.body).filter(|_| is_json)
    }

    /// Whether both can be of one execution: true of an answer and its replays, and, where the
    /// endpoint answers something new each time, false of two executions.
    pub(crate) fn is_like(&self, other: &Self, policy: &Policy) -> bool {
        let (one, other) = (self.print(policy), other.print(policy));
        // A header that got lost on the way does not make another execution.
        let headers = one.headers.iter().zip(&other.headers);
        let differ =
            headers.filter(|(one, other)| one.is_some() && other.is_some() && one != other);
        one.body == other.body && differ.count() == 0
    }

    fn print(&self, policy: &Policy) -> Print {
        let marks = policy.http.body_marks.as_ref();
        let members = marks.and_then(|marks| Some((marks, self.members()?)));
        let body = match members {
            Some((marks, members)) => PrintedBody::Members(members.without(&names(marks))),
            None => PrintedBody::Bytes(self.body.clone()),
        };
        let telling: &[HeaderName] = match marks {
            // A marked body has another tag, or none.
            Some(_) => &[LOCATION, CONTENT_LOCATION],
            None => &[LOCATION, CONTENT_LOCATION, ETAG],
        };
        let headers = telling
            .iter()
            .map(|name| {
                self.headers
                    .get(name)
                    .map(|value| value.as_bytes().to_vec())
            })
            .collect();
        Print { body, headers }
    }

    /// Whether it says of itself that it is a replay; nothing where the policy has no flag for it.
    pub(crate) fn is_flagged(&self, policy: &Policy) -> Option<bool> {
        let by_header = policy.http.replay_marks.iter().find_map(|mark| match mark {
            Mark::Flag(name) => Some(self.header(name) == Some("true")),
            Mark::Text(..) | Mark::Key(_) | Mark::Expires(_) | Mark::OriginalTime(_) => None,
        });
        by_header.or_else(|| {
            let marks = policy.http.body_marks.as_ref()?;
            Some(self.members()?.get(&marks.flag) == Some("true"))
        })
    }
}

pub(crate) fn names(marks: &BodyMarks) -> [&str; 3] {
    [&marks.flag, &marks.submitted_at, &marks.message]
}

/// The status with which an answer of `status` is replayed.
pub(crate) fn replay_status(policy: &Policy, status: u16) -> u16 {
    match policy.http.replay_status {
        ReplayStatus::Ok if (200..300).contains(&status) && status != 204 => 200,
        ReplayStatus::Ok | ReplayStatus::AsStored => status,
    }
}
