//! Which headers of a request the rules give a meaning. Every field is named here, so that one that is new
//! cannot be forgotten.

use http::HeaderName;

use super::{ActorType, HttpRules, KeyTime, KeyTimeRule, Policy, ScopePart, TtlRule};
use crate::fingerprint::FingerprintRule;

impl Policy {
    /// The headers by which a request says which key it has, how old that is, for how long its answer is to
    /// be kept, whose it is and what it means; some more than once. Nothing in front of the layer may drop
    /// them because a client says so.
    pub fn request_headers(&self) -> Vec<HeaderName> {
        let Self {
            key: _,
            fingerprint,
            lease_for: _,
            keep_for: _,
            ttl,
            on_lapse: _,
            duplicate: _,
            waiters_max: _,
            local_waiters_max: _,
            execution_max: _,
            store_down: _,
            retry_after: _,
            stored: _,
            limits: _,
            http,
        } = self;
        let FingerprintRule {
            method: _,
            path: _,
            query: _,
            content_type: _,
            headers,
            body: _,
            only: _,
            except: _,
            numbers: _,
        } = fingerprint;
        let asked = ttl.as_ref().map(|TtlRule { header, .. }| header.clone());
        let mut all = http.request_headers();
        all.extend(headers.iter().cloned().chain(asked));
        all
    }
}

impl HttpRules {
    fn request_headers(&self) -> Vec<HeaderName> {
        let Self {
            key_header,
            key_member: _,
            key_first: _,
            key_time,
            methods: _,
            derive: _,
            status_path: _,
            replay_status: _,
            replay_marks: _,
            first_marks: _,
            refusal_marks: _,
            body_marks: _,
            drop_headers: _,
            // Of answers only.
            opt_out_header: _,
            refusals: _,
            envelope: _,
            scope,
            actor_type,
        } = self;
        let made = key_time
            .as_ref()
            .and_then(|KeyTimeRule { from, .. }| match from {
                KeyTime::Header(name) => Some(name),
                KeyTime::UuidV7 => None,
            });
        let kind = actor_type.as_ref().and_then(|kind| match kind {
            ActorType::Header(name) => Some(name),
            ActorType::Always(_) | ActorType::Claim(_) => None,
        });
        let scoped = scope.iter().filter_map(|part| match part {
            ScopePart::Header { name, .. } | ScopePart::UserHeader(name) => Some(name),
            // Those of a credential are known to everyone: `Authorization` and `Cookie`.
            ScopePart::Route
            | ScopePart::Caller
            | ScopePart::Path(_)
            | ScopePart::PathAfter(_)
            | ScopePart::Cookie(_)
            | ScopePart::Body(_)
            | ScopePart::Jwt(_) => None,
        });
        let all = scoped.chain(made).chain(kind).chain([key_header]);
        all.cloned().collect()
    }
}
