//! From rules to a policy: every value is there, and they fit together.

use std::collections::BTreeMap;
use std::time::Duration;

use http::HeaderName;

use super::RuleError;
use super::rules::{BodyMembers, Derive, Fingerprint, KeyTimes, Refused, Rules, Stored, TtlHeader};
use super::units::{
    Body, Charset as Chars, ErrorBody, FirstIn, Header, KeyNeeds, Lapse, Maybe, MethodList,
    MethodName, NumbersAs, ReasonName, ReplayAs, StatusPath, StoreIs, Unit,
};
use crate::bounds::{Count, Span};
use crate::fingerprint::{BodyRule, FingerprintRule, Numbers};
use crate::key::{Charset, KeyRule};
use crate::policy::{
    BodyMarks, DeriveRule, Duplicate, Envelope, HttpRules, KeyFirst, KeyNeed, KeyTimeRule, Limits,
    Methods, Policy, RefusalRow, RefusalTable, ReplayStatus, StoreDown, StoredRule, TtlRule,
    TtlUnit,
};
use crate::record::OnLapse;
use crate::refusal::Reason;

impl Rules {
    /// The policy that these rules give, if they give every value and all fit together. Rules that
    /// say only how they differ are laid [`over`](Self::over) a profile's first.
    pub fn policy(self) -> Result<Policy, RuleError> {
        let ttl_header = maybe(self.ttl_header, "ttl_header")?;
        let key_time = maybe(self.key_time, "key_time")?;
        let keep_for = given(self.ttl, "ttl")?.get();
        if let Some(times) = &key_time {
            check_times(times, keep_for, ttl_header.as_ref())?;
        }
        Ok(Policy {
            key: KeyRule {
                bytes_max: given(self.key_bytes_max, "key_bytes_max")?.as_usize(),
                charset: given(self.key_charset, "key_charset")?.into(),
                random: given(self.key_random, "key_random")?,
            },
            fingerprint: fingerprint(self.fingerprint)?,
            lease_for: given(self.lease, "lease")?.get(),
            keep_for,
            ttl: ttl_header.map(ttl).transpose()?,
            on_lapse: match given(self.on_lapse, "on_lapse")? {
                Lapse::Rerun => OnLapse::Rerun,
                Lapse::Hold => OnLapse::Hold,
            },
            duplicate: match given(self.wait, "wait")?.get() {
                span if span.is_zero() => Duplicate::Refuse,
                span => Duplicate::Wait(span),
            },
            waiters_max: given(self.waiters_max, "waiters_max")?.as_usize(),
            local_waiters_max: given(self.local_waiters_max, "local_waiters_max")?.as_usize(),
            execution_max: given(self.execution_max, "execution_max")?.get(),
            store_down: match given(self.store_down, "store_down")? {
                StoreIs::Closed => StoreDown::Closed,
                StoreIs::Open => StoreDown::Open,
            },
            retry_after: given(self.retry_after, "retry_after")?.get(),
            stored: stored(self.stored)?,
            limits: Limits {
                request_bytes_max: given(self.request_bytes_max, "request_bytes_max")?.as_usize(),
                response_bytes_max: given(self.response_bytes_max, "response_bytes_max")?
                    .as_usize(),
                header_bytes_max: given(self.header_bytes_max, "header_bytes_max")?.as_usize(),
            },
            http: HttpRules {
                key_header: given(self.key_header, "key_header")?.0,
                key_member: maybe(self.key_member, "key_member")?,
                key_first: match given(self.key_first, "key_first")? {
                    FirstIn::Header => KeyFirst::Header,
                    FirstIn::Body => KeyFirst::Body,
                },
                key_time: key_time.map(|times| KeyTimeRule {
                    from: times.from,
                    ahead_max: times.ahead_max.get(),
                }),
                methods: methods(given(self.methods, "methods")?, given(self.key, "key")?)?,
                derive: maybe(self.derive, "derive")?.map(derive),
                status_path: maybe(self.status_path, "status_path")?.map(|StatusPath(it)| it),
                replay_status: match given(self.replay_status, "replay_status")? {
                    ReplayAs::AsStored => ReplayStatus::AsStored,
                    ReplayAs::Ok => ReplayStatus::Ok,
                },
                replay_marks: given(self.replay_marks, "replay_marks")?,
                first_marks: given(self.first_marks, "first_marks")?,
                refusal_marks: given(self.refusal_marks, "refusal_marks")?,
                body_marks: maybe(self.body_marks, "body_marks")?.map(body_marks),
                drop_headers: headers(given(self.drop_headers, "drop_headers")?),
                opt_out_header: given(self.opt_out_header, "opt_out_header")?.0,
                refusals: refusals(self.refusals)?,
                envelope: given(self.error_body, "error_body")?.into(),
                scope: given(self.scope, "scope")?,
                actor_type: maybe(self.actor_type, "actor_type")?,
            },
        })
    }
}

/// A key whose answer may be forgotten sooner than its age tells would run again.
fn check_times(
    times: &KeyTimes,
    keep_for: Duration,
    ttl_header: Option<&TtlHeader>,
) -> Result<(), RuleError> {
    if ttl_header.is_some() {
        let why = "it cannot go with a `ttl_header`, by which an answer may be forgotten before its \
                   key is too old: set one of them to \"none\"";
        return Err(RuleError::new("key_time", why));
    }
    if times.ahead_max.get() >= keep_for {
        let why = "`ttl` must be longer than it: raise `ttl`, or lower this";
        return Err(RuleError::new("key_time.ahead_max", why));
    }
    Ok(())
}

fn given<T>(value: Option<T>, at: &str) -> Result<T, RuleError> {
    value.ok_or_else(|| RuleError::new(at, "it is not given, and there is no base that gives it"))
}

fn maybe<T>(value: Option<Maybe<T>>, at: &str) -> Result<Option<T>, RuleError> {
    given(value, at).map(Into::into)
}

fn headers(names: Vec<Header>) -> Vec<HeaderName> {
    names.into_iter().map(|Header(name)| name).collect()
}

fn methods(covered: MethodList, needs: KeyNeeds) -> Result<Methods, RuleError> {
    let list = match (covered, &needs) {
        (MethodList::Unsafe, KeyNeeds::Optional) => return Ok(Methods::Unsafe(KeyNeed::Optional)),
        (MethodList::Unsafe, KeyNeeds::Required) => return Ok(Methods::Unsafe(KeyNeed::Required)),
        (MethodList::Unsafe, KeyNeeds::On(_)) => {
            let why = "a list of methods that need a key goes with a list of `methods`, like \
                       methods = [\"POST\", \"PUT\"]";
            return Err(RuleError::new("key", why));
        }
        (MethodList::Only(list), _) => list,
    };
    if let KeyNeeds::On(needing) = &needs
        && let Some(MethodName(other)) = needing.iter().find(|it| !list.contains(it))
    {
        let why =
            format!("{other} is not among the covered `methods`: add it there, or leave it out");
        return Err(RuleError::new("key", why));
    }
    let with_need = list.into_iter().map(|name| {
        let is_needed = match &needs {
            KeyNeeds::Optional => false,
            KeyNeeds::Required => true,
            KeyNeeds::On(needing) => needing.contains(&name),
        };
        let need = if is_needed {
            KeyNeed::Required
        } else {
            KeyNeed::Optional
        };
        (name.0, need)
    });
    Ok(Methods::Only(with_need.collect()))
}

fn fingerprint(rule: Fingerprint) -> Result<FingerprintRule, RuleError> {
    Ok(FingerprintRule {
        method: given(rule.method, "fingerprint.method")?,
        path: given(rule.path, "fingerprint.path")?,
        query: given(rule.query, "fingerprint.query")?,
        content_type: given(rule.content_type, "fingerprint.content_type")?,
        headers: headers(given(rule.headers, "fingerprint.headers")?),
        body: match given(rule.body, "fingerprint.body")? {
            Body::Canonical => BodyRule::Canonical,
            Body::Bytes => BodyRule::Bytes,
            Body::Ignore => BodyRule::Ignore,
        },
        only: given(rule.only, "fingerprint.only")?,
        except: given(rule.except, "fingerprint.except")?,
        numbers: match given(rule.numbers, "fingerprint.numbers")? {
            NumbersAs::Digits => Numbers::Digits,
            NumbersAs::Value => Numbers::Value,
        },
    })
}

fn stored(rule: Stored) -> Result<StoredRule, RuleError> {
    let from = as_u16(given(rule.from, "stored.from")?);
    let below = as_u16(given(rule.below, "stored.below")?);
    if below <= from {
        let why = format!(
            "`below` must be above `from`, {from}: write {}, or lower `from`",
            from + 1
        );
        return Err(RuleError::new("stored.below", why));
    }
    let except = given(rule.except, "stored.except")?;
    Ok(StoredRule {
        from,
        below,
        except: except.into_iter().map(as_u16).collect(),
    })
}

fn ttl(header: TtlHeader) -> Result<TtlRule, RuleError> {
    if header.max.get() < header.min.get() {
        let why =
            "`max` is below `min`: write the shorter time as min, like min = \"1s\", max = \"30d\"";
        return Err(RuleError::new("ttl_header.max", why));
    }
    Ok(TtlRule {
        header: header.name.0,
        unit: match header.unit {
            Unit::Seconds => TtlUnit::Seconds,
            Unit::Milliseconds => TtlUnit::Milliseconds,
        },
        min: header.min.get(),
        max: header.max.get(),
    })
}

fn derive(rule: Derive) -> DeriveRule {
    DeriveRule {
        context_field: rule.context,
        data_field: rule.data,
        trim: rule.trim,
    }
}

fn body_marks(members: BodyMembers) -> BodyMarks {
    BodyMarks {
        flag: members.flag,
        submitted_at: members.submitted_at,
        message: members.message,
        message_text: members.text,
    }
}

fn refusals(mut rows: BTreeMap<ReasonName, Refused>) -> Result<RefusalTable, RuleError> {
    let mut read = Vec::with_capacity(Reason::ALL.len());
    for reason in Reason::ALL {
        let row = rows.remove(&ReasonName(reason)).unwrap_or_default();
        let at = |name: &str| format!("refusals.{}.{name}", reason.name());
        let status = as_u16(given(row.status, &at("status"))?);
        if status < 400 && (status, reason) != (202, Reason::InProgress) {
            let why = format!(
                "{status} does not say that the request was refused: write a status from 400 to \
                 599; only in-progress may be 202"
            );
            return Err(RuleError::new(&at("status"), why));
        }
        read.push(RefusalRow {
            reason,
            status,
            code: given(row.code, &at("code"))?,
            kind: row.kind,
            marks: row.marks,
            retryable: given(row.retryable, &at("retryable"))?,
            retry_after: row.retry_after.map(Span::get),
        });
    }
    Ok(RefusalTable::of(read))
}

fn as_u16<const MIN: u64, const MAX: u64>(number: Count<MIN, MAX>) -> u16 {
    u16::try_from(number.get()).unwrap_or(u16::MAX)
}

impl From<Chars> for Charset {
    fn from(charset: Chars) -> Self {
        match charset {
            Chars::UrlSafe => Self::UrlSafe,
            Chars::Visible => Self::Visible,
            Chars::Text => Self::Text,
            Chars::UuidV4 => Self::UuidV4,
        }
    }
}

impl From<ErrorBody> for Envelope {
    fn from(body: ErrorBody) -> Self {
        match body {
            ErrorBody::Problem => Self::Problem,
            ErrorBody::OkError => Self::OkError,
            ErrorBody::SuccessError => Self::SuccessError,
            ErrorBody::CodeError => Self::CodeError,
            ErrorBody::TypeError => Self::TypeError,
            ErrorBody::FlatError => Self::FlatError,
            ErrorBody::ErrorList => Self::ErrorList,
            ErrorBody::NamedError => Self::NamedError,
            ErrorBody::StatusError => Self::StatusError,
        }
    }
}
