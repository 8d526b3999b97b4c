//! What was asked and answered, kept as evidence: bounded, shortened, and without secrets.

use std::collections::BTreeMap;

use http::header::{RETRY_AFTER, SET_COOKIE};
use http::{HeaderName, HeaderValue};

use super::answer::Answer;
use super::client::Trouble;
use super::report::Evidence;
use super::secrets::Secrets;

const EVIDENCE_MAX: usize = 24;
const HEADERS_MAX: usize = 32;
const HEADER_CHARS_MAX: usize = 160;
const BODY_CHARS_MAX: usize = 240;
const RETRY_AFTERS_MAX: usize = 1000;

pub(crate) struct Journal {
    secrets: Secrets,
    evidence: Vec<Evidence>,
    left_out: usize,
    /// What was asked before any check; evidence for those that look back at it.
    soundings: Vec<Evidence>,
    is_recalled: bool,
    /// Every `Retry-After` of the run, and to what it was the answer.
    retry_afters: Vec<(String, HeaderValue)>,
}

impl Journal {
    pub(crate) fn new(secrets: Secrets) -> Self {
        Self {
            secrets,
            evidence: Vec::new(),
            left_out: 0,
            soundings: Vec::new(),
            is_recalled: false,
            retry_afters: Vec::new(),
        }
    }

    /// Keeps a key out of everything that is shown.
    pub(crate) fn hide(&mut self, key: &str) {
        self.secrets.add(key);
    }

    pub(crate) fn hidden(&self, text: &str) -> String {
        self.secrets.hide(text)
    }

    pub(crate) fn note(&mut self, sent: &str, answer: Result<&Answer, &Trouble>) {
        if let Ok(answer) = answer
            && self.retry_afters.len() < RETRY_AFTERS_MAX
        {
            let values = answer.headers.get_all(RETRY_AFTER).iter().cloned();
            self.retry_afters
                .extend(values.map(|value| (sent.to_owned(), value)));
        }
        if self.evidence.len() >= EVIDENCE_MAX {
            self.left_out += 1;
            return;
        }
        let evidence = match answer {
            Ok(answer) => self.shown(sent, answer),
            Err(trouble) => silent(sent, Some(trouble.to_string())),
        };
        self.evidence.push(evidence);
    }

    /// A request whose answer was not read.
    pub(crate) fn note_hang_up(&mut self, sent: &str) {
        self.evidence.push(silent(sent, None));
    }

    /// Keeps the evidence so far, to be recalled.
    pub(crate) fn keep_soundings(&mut self) {
        self.soundings = self.take();
    }

    /// The check that is running looks at the soundings.
    pub(crate) fn recall(&mut self) {
        self.is_recalled = true;
    }

    /// The evidence since it was last taken.
    pub(crate) fn take(&mut self) -> Vec<Evidence> {
        let mut evidence = if std::mem::take(&mut self.is_recalled) {
            self.soundings.clone()
        } else {
            Vec::new()
        };
        evidence.append(&mut self.evidence);
        let left_out = std::mem::take(&mut self.left_out);
        if left_out > 0 {
            evidence.push(silent(&format!("… and {left_out} more"), None));
        }
        evidence
    }

    pub(crate) fn retry_afters(&self) -> &[(String, HeaderValue)] {
        &self.retry_afters
    }

    fn shown(&self, sent: &str, answer: &Answer) -> Evidence {
        let mut headers = BTreeMap::<String, Vec<String>>::new();
        for (name, value) in answer.headers.iter().take(HEADERS_MAX) {
            let shown = shortened(&self.secrets.hide(&text(name, value)), HEADER_CHARS_MAX);
            headers.entry(name.to_string()).or_default().push(shown);
        }
        let body = match std::str::from_utf8(&answer.body) {
            Ok(text) => shortened(&self.secrets.hide(text), BODY_CHARS_MAX),
            Err(_) => {
                let start = answer.body.iter().take(BODY_CHARS_MAX / 8);
                let hex: String = start.map(|byte| format!("{byte:02x} ")).collect();
                format!("{} bytes: {hex}…", answer.body.len())
            }
        };
        Evidence {
            sent: sent.to_owned(),
            status: Some(answer.status),
            headers,
            body,
            trouble: None,
        }
    }
}

fn silent(sent: &str, trouble: Option<String>) -> Evidence {
    Evidence {
        sent: sent.to_owned(),
        status: None,
        headers: BTreeMap::new(),
        body: String::new(),
        trouble,
    }
}

/// A cookie's value may be somebody's session: only its name is shown.
fn text(name: &HeaderName, value: &HeaderValue) -> String {
    let value = String::from_utf8_lossy(value.as_bytes());
    match value.split_once('=') {
        Some((cookie, _)) if name == SET_COOKIE => format!("{cookie}=…"),
        _ => value.into_owned(),
    }
}

/// One line of at most so many characters.
fn shortened(text: &str, chars_max: usize) -> String {
    let mut chars = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut start: String = chars.by_ref().take(chars_max).collect();
    if chars.next().is_some() {
        start.push('…');
    }
    start
}
