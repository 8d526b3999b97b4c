//! An endpoint that no check can use: it cannot be reached, or refuses a plain new request. Says
//! what to do about it.

use std::io::ErrorKind;

use thiserror::Error;

use super::answer::Answer;
use super::client::Trouble;
use super::plan::Plan;
use super::report::Evidence;

/// Why an endpoint cannot be verified, and what to try.
#[derive(Debug, Error)]
#[error("{problem}\nhint: {hint}")]
pub struct Unusable {
    /// What happened.
    pub problem: String,
    /// What to try.
    pub hint: String,
}

impl Unusable {
    pub(crate) fn silent(plan: &Plan, trouble: Trouble) -> Self {
        let hint = match &trouble {
            Trouble::Connect(error) if error.kind() == ErrorKind::ConnectionRefused => {
                "nothing listens there: is the server running, and is the port right?"
            }
            Trouble::Connect(_) => "is the host's name right, and can this machine reach it?",
            Trouble::Tls(_) => {
                "if its certificate is of your own authority, set SSL_CERT_FILE to that authority's PEM file; if it speaks plain HTTP, use http://"
            }
            Trouble::Timeout(_) => "if it is only slow, give it longer with --timeout",
            Trouble::Closed(_) => "does it speak HTTP/1.1, and is it http rather than https?",
            Trouble::AnswerTooLarge | Trouble::TooManyRequests => {
                "use an endpoint with a short answer"
            }
        };
        Self {
            problem: format!("{}: {trouble}", plan.target.shown()),
            hint: hint.into(),
        }
    }

    pub(crate) fn refusing(plan: &Plan, answer: &Answer, evidence: Vec<Evidence>) -> Self {
        let body = evidence.last().map(|evidence| evidence.body.as_str());
        let body = body.filter(|body| !body.is_empty()).unwrap_or("no body");
        let hint = match answer.status {
            300..400 => "redirects are not followed: give the URL it points to",
            401 | 403 | 407 => "give a credential with --header 'Authorization: …'",
            404 => "is the path right?",
            405 => "give the endpoint's method with --method",
            429 => "it limits requests: wait, or use an account that may send more",
            400 | 411 | 415 | 422 => {
                "give a request it takes with --body and --content-type, and see that --profile fits its keys"
            }
            500.. => "it fails by itself: look at its log",
            _ => "a new request must succeed before retries can be judged",
        };
        Self {
            problem: format!(
                "{} {} answers a new request with {}: {body}",
                plan.method,
                plan.target.shown(),
                answer.status
            ),
            hint: hint.into(),
        }
    }
}
