//! Policies: whatever the rules are, exactly what they say is stored, replayed and refused.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};
use onlyonce_core::Policy;
use onlyonce_core::operate::{Filter, Page};
use onlyonce_core::policy::{KeyNeed, ReplayStatus, StoredRule, TtlRule, TtlUnit};

use crate::layered::{Ask, Handler, Layered, block_on};

const TTL: HeaderName = HeaderName::from_static("x-keep");

/// Eight bytes are the rules and the handler; the rest is the header by which a request asks for a
/// time to live.
pub fn policy(data: &[u8]) {
    let Some((rules, asked)) = data.split_first_chunk() else {
        return;
    };
    let case = Case::new(*rules);
    let Ok(asked) = HeaderValue::from_bytes(asked) else {
        return;
    };
    block_on(case.play(&asked));
}

struct Case {
    policy: Policy,
    ttl: TtlRule,
    status: StatusCode,
    body: Bytes,
    is_keyed: bool,
}

impl Case {
    fn new([from, below, except, status, limits, switches, least, most]: [u8; 8]) -> Self {
        let code = |byte: u8| 100 + 2 * u16::from(byte);
        let is = |bit: u8| switches & 1 << bit != 0;
        let min = Duration::from_millis(1 + u64::from(least) * 100);
        let ttl = TtlRule {
            header: TTL,
            unit: if is(0) {
                TtlUnit::Seconds
            } else {
                TtlUnit::Milliseconds
            },
            min,
            max: min + Duration::from_millis(u64::from(most) * 5000),
        };
        let mut policy = Policy {
            stored: StoredRule {
                from: code(from),
                below: code(below),
                except: vec![code(except)],
            },
            ttl: Some(ttl.clone()),
            ..Policy::default()
        };
        policy.limits.response_bytes_max = usize::from(limits & 15);
        policy.http.replay_status = if is(1) {
            ReplayStatus::Ok
        } else {
            ReplayStatus::AsStored
        };
        let need = if is(2) {
            KeyNeed::Required
        } else {
            KeyNeed::Optional
        };
        policy.http.methods = policy.http.methods.all_need(need);
        Self {
            policy,
            ttl,
            status: StatusCode::from_u16(200 + u16::from(status)).expect("from 200 to 455"),
            body: vec![b'x'; usize::from(limits >> 4)].into(),
            is_keyed: is(3),
        }
    }

    async fn play(self, asked: &HeaderValue) {
        let kept = self.kept(asked.as_bytes());
        let is_required =
            self.policy.http.methods.need(&http::Method::POST) == Some(KeyNeed::Required);
        let mut ask = Ask::parse(b"POST /orders\nhost: a").expect("a request");
        ask.headers.insert(TTL, asked.clone());
        if self.is_keyed {
            let key = HeaderValue::from_static("7c9e6679-7425-40de-944b-e07fc1f90ae7");
            ask.headers.insert(&self.policy.http.key_header, key);
        }
        let handler = Handler {
            status: self.status,
            body: self.body.clone(),
        };
        let layered = Layered::open(self.policy.clone(), None, handler).await;
        let first = layered.send(&ask).await;
        let second = layered.send(&ask).await;

        if !self.is_keyed {
            assert_eq!(layered.runs(), if is_required { 0 } else { 2 });
            return;
        }
        let Some(kept) = kept else {
            assert_eq!((layered.runs(), first.status), (0, StatusCode::BAD_REQUEST));
            assert!(first.is_json());
            return;
        };
        assert_eq!((first.status, &first.body), (self.status, &self.body));
        let is_stored = self.stores();
        assert_eq!(layered.runs(), if is_stored { 1 } else { 2 });
        assert_eq!(second.is_replay, is_stored);
        if self.body.len() <= self.policy.limits.response_bytes_max {
            let expected = if is_stored {
                self.replayed()
            } else {
                self.status
            };
            assert_eq!((second.status, &second.body), (expected, &self.body));
        }
        let left = self.left(&layered).await;
        assert_eq!(left, if is_stored { vec![kept] } else { Vec::new() });
    }

    /// How long a request that asks like this is kept; nothing if it asks for nonsense.
    fn kept(&self, asked: &[u8]) -> Option<Duration> {
        let text = std::str::from_utf8(asked.trim_ascii()).ok()?;
        let is_number = !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
        // More digits than a u128 takes are more than any bound.
        let number = is_number.then(|| text.parse().unwrap_or(u128::MAX))?;
        let millis = match self.ttl.unit {
            TtlUnit::Seconds => number.saturating_mul(1000),
            TtlUnit::Milliseconds => number,
        };
        let millis = millis.clamp(self.ttl.min.as_millis(), self.ttl.max.as_millis());
        Some(Duration::from_millis(
            u64::try_from(millis).expect("within the bound"),
        ))
    }

    fn stores(&self) -> bool {
        let rule = &self.policy.stored;
        let status = self.status.as_u16();
        rule.from <= status && status < rule.below && !rule.except.contains(&status)
    }

    fn replayed(&self) -> StatusCode {
        match self.policy.http.replay_status {
            ReplayStatus::Ok if self.status.is_success() && self.status != 204 => StatusCode::OK,
            ReplayStatus::Ok | ReplayStatus::AsStored => self.status,
        }
    }

    /// How long each record is still kept.
    async fn left(&self, layered: &Layered) -> Vec<Duration> {
        let operate = layered
            .engine
            .store()
            .operate()
            .expect("an operators' side");
        let page = Page {
            after: None,
            records_max: 10,
        };
        let listed = operate.list(&Filter::default(), &page).await;
        let listed = listed.expect("a store in memory lists");
        listed
            .into_iter()
            .map(|(_, record)| record.keep_left)
            .collect()
    }
}
