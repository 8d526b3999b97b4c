//! A policy as the file that would give it, whole, for people to read against a document's table.

use std::fmt::{self, Display, Write as _};
use std::time::Duration;

use super::units::NONE;
use crate::bounds::{millis, shown};
use crate::fingerprint::{BodyRule, FingerprintRule, Numbers};
use crate::key::{Charset, KeyRule};
use crate::policy::{
    Envelope, HttpRules, KeyFirst, KeyNeed, KeyTimeRule, Limits, Methods, Policy, RefusalRow,
    RefusalTable, ReplayStatus, StoreDown, StoredRule, TtlRule, TtlUnit,
};
use crate::record::OnLapse;
use crate::refusal::Reason;

impl Policy {
    /// The policy as a profile's file: every value, none left to a base. What is
    /// [bounded](Self::bounded) beyond what a file may say is shown as it is.
    ///
    /// ```
    /// use onlyonce_core::{Policy, Profile};
    ///
    /// let text = Policy::default().to_toml();
    /// assert_eq!(Profile::from_toml(&text).unwrap(), Policy::default());
    /// ```
    pub fn to_toml(&self) -> String {
        let mut out = String::new();
        self.write(&mut out)
            .expect("a string takes whatever is written");
        out
    }

    fn write(&self, out: &mut String) -> fmt::Result {
        let Self {
            key,
            fingerprint,
            lease_for,
            keep_for,
            ttl,
            on_lapse,
            duplicate,
            waiters_max,
            local_waiters_max,
            execution_max,
            store_down,
            retry_after,
            stored,
            limits,
            http,
        } = self;
        requests(out, http, key)?;
        section(out, "How long things last.")?;
        line(out, "ttl", span(*keep_for))?;
        line(out, "ttl_header", or_none(ttl.as_ref().map(ttl_header)))?;
        line(out, "lease", span(*lease_for))?;
        line(out, "execution_max", span(*execution_max))?;
        line(out, "wait", span(duplicate.patience()))?;
        line(out, "retry_after", span(*retry_after))?;
        section(out, "What happens when something goes wrong.")?;
        line(
            out,
            "on_lapse",
            text(match on_lapse {
                OnLapse::Rerun => "rerun",
                OnLapse::Hold => "hold",
            }),
        )?;
        line(
            out,
            "store_down",
            text(match store_down {
                StoreDown::Closed => "closed",
                StoreDown::Open => "open",
            }),
        )?;
        section(out, "Bounds.")?;
        line(out, "waiters_max", waiters_max)?;
        line(out, "local_waiters_max", local_waiters_max)?;
        bounds(out, limits)?;
        answers(out, http)?;
        meaning(out, fingerprint)?;
        kept(out, stored)?;
        refusals(out, &http.refusals)
    }
}

fn requests(out: &mut String, http: &HttpRules, key: &KeyRule) -> fmt::Result {
    let KeyRule {
        bytes_max,
        charset,
        random,
    } = key;
    out.push_str("# Which requests are covered, and what names them.\n");
    let (methods, needs) = methods(&http.methods);
    line(out, "methods", methods)?;
    line(out, "key", needs)?;
    line(out, "key_header", text(http.key_header.as_str()))?;
    line(
        out,
        "key_member",
        or_none(http.key_member.as_ref().map(|it| text(&it.to_string()))),
    )?;
    line(
        out,
        "key_first",
        text(match http.key_first {
            KeyFirst::Header => "header",
            KeyFirst::Body => "body",
        }),
    )?;
    let key_time = http.key_time.as_ref().map(|rule| {
        let KeyTimeRule { from, ahead_max } = rule;
        let (from, ahead_max) = (text(&from.to_string()), span(*ahead_max));
        format!("{{ from = {from}, ahead_max = {ahead_max} }}")
    });
    line(out, "key_time", or_none(key_time))?;
    line(out, "key_bytes_max", bytes_max)?;
    line(
        out,
        "key_charset",
        text(match charset {
            Charset::UrlSafe => "url-safe",
            Charset::Visible => "visible",
            Charset::Text => "text",
            Charset::UuidV4 => "uuid-v4",
        }),
    )?;
    line(out, "key_random", random)?;
    let derive = http.derive.as_ref().map(|rule| {
        let (context, data) = (text(&rule.context_field), text(&rule.data_field));
        format!(
            "{{ context = {context}, data = {data}, trim = {} }}",
            rule.trim
        )
    });
    line(out, "derive", or_none(derive))?;
    line(
        out,
        "status_path",
        or_none(http.status_path.as_ref().map(|it| text(it))),
    )?;
    section(out, "Whose record it is, besides the host.")?;
    line(out, "scope", list(&http.scope))?;
    let actor_type = http.actor_type.as_ref().map(|it| text(&it.to_string()));
    line(out, "actor_type", or_none(actor_type))
}

fn bounds(out: &mut String, limits: &Limits) -> fmt::Result {
    let Limits {
        request_bytes_max,
        response_bytes_max,
        header_bytes_max,
    } = limits;
    line(out, "request_bytes_max", request_bytes_max)?;
    line(out, "response_bytes_max", response_bytes_max)?;
    line(out, "header_bytes_max", header_bytes_max)
}

/// What answers look like. What of `http` is not here is in `requests` and `refusals`.
fn answers(out: &mut String, http: &HttpRules) -> fmt::Result {
    let HttpRules {
        key_header: _,
        key_member: _,
        key_first: _,
        key_time: _,
        methods: _,
        derive: _,
        status_path: _,
        scope: _,
        actor_type: _,
        refusals: _,
        replay_status,
        replay_marks,
        first_marks,
        refusal_marks,
        body_marks,
        drop_headers,
        opt_out_header,
        envelope,
    } = http;
    section(out, "What a replay looks like.")?;
    line(
        out,
        "replay_status",
        text(match replay_status {
            ReplayStatus::AsStored => "as-stored",
            ReplayStatus::Ok => "ok",
        }),
    )?;
    line(out, "replay_marks", list(replay_marks))?;
    line(out, "first_marks", list(first_marks))?;
    line(out, "refusal_marks", list(refusal_marks))?;
    let members = body_marks.as_ref().map(|marks| {
        format!(
            "{{ flag = {}, submitted_at = {}, message = {}, text = {} }}",
            text(&marks.flag),
            text(&marks.submitted_at),
            text(&marks.message),
            text(&marks.message_text)
        )
    });
    line(out, "body_marks", or_none(members))?;
    line(out, "drop_headers", list(drop_headers))?;
    line(out, "opt_out_header", text(opt_out_header.as_str()))?;
    section(out, "What a refusal looks like.")?;
    line(
        out,
        "error_body",
        text(match envelope {
            Envelope::Problem => "problem",
            Envelope::OkError => "ok-error",
            Envelope::SuccessError => "success-error",
            Envelope::CodeError => "code-error",
            Envelope::TypeError => "type-error",
            Envelope::FlatError => "flat-error",
            Envelope::ErrorList => "error-list",
            Envelope::NamedError => "named-error",
            Envelope::StatusError => "status-error",
        }),
    )
}

fn meaning(out: &mut String, rule: &FingerprintRule) -> fmt::Result {
    let FingerprintRule {
        method,
        path,
        query,
        content_type,
        headers,
        body,
        only,
        except,
        numbers,
    } = rule;
    section(out, "What makes two requests the same.")?;
    out.push_str("[fingerprint]\n");
    line(out, "method", method)?;
    line(out, "path", path)?;
    line(out, "query", query)?;
    line(out, "content_type", content_type)?;
    line(out, "headers", list(headers))?;
    line(
        out,
        "body",
        text(match body {
            BodyRule::Canonical => "canonical",
            BodyRule::Bytes => "bytes",
            BodyRule::Ignore => "ignore",
        }),
    )?;
    line(out, "only", list(only))?;
    line(out, "except", list(except))?;
    line(
        out,
        "numbers",
        text(match numbers {
            Numbers::Digits => "digits",
            Numbers::Value => "value",
        }),
    )
}

fn kept(out: &mut String, rule: &StoredRule) -> fmt::Result {
    let StoredRule {
        from,
        below,
        except,
    } = rule;
    section(out, "Which answers are stored, by their status.")?;
    out.push_str("[stored]\n");
    line(out, "from", from)?;
    line(out, "below", below)?;
    let except: Vec<String> = except.iter().map(u16::to_string).collect();
    line(out, "except", format_args!("[{}]", except.join(", ")))
}

fn refusals(out: &mut String, table: &RefusalTable) -> fmt::Result {
    section(out, "How each refusal is answered.")?;
    out.push_str("[refusals]\n");
    for reason in Reason::ALL {
        let RefusalRow {
            reason,
            status,
            code,
            kind,
            marks,
            retryable,
            retry_after,
        } = table.row(reason);
        let code = text(code);
        let kind = kind.as_ref().map(|kind| format!(", kind = {}", text(kind)));
        let kind = kind.unwrap_or_default();
        let marks = marks
            .as_ref()
            .map(|marks| format!(", marks = {}", list(marks)));
        let marks = marks.unwrap_or_default();
        let after = retry_after.map(|after| format!(", retry_after = {}", span(after)));
        let after = after.unwrap_or_default();
        let row = format!(
            "{{ status = {status}, code = {code}{kind}, retryable = {retryable}{after}{marks} }}"
        );
        line(out, reason.name(), row)?;
    }
    Ok(())
}

fn methods(methods: &Methods) -> (String, String) {
    let need = |need: KeyNeed| match need {
        KeyNeed::Optional => text("optional"),
        KeyNeed::Required => text("required"),
    };
    match methods {
        Methods::Unsafe(all) => (text("unsafe"), need(*all)),
        Methods::Only(some) => {
            let names = some.iter().map(|(method, _)| method);
            let needing = some.iter().filter(|(_, need)| *need == KeyNeed::Required);
            let needing: Vec<_> = needing.map(|(method, _)| method).collect();
            let needs = match needing.len() {
                0 => need(KeyNeed::Optional),
                all if all == some.len() => need(KeyNeed::Required),
                _ => list(needing),
            };
            (list(names), needs)
        }
    }
}

fn ttl_header(rule: &TtlRule) -> String {
    let TtlRule {
        header,
        unit,
        min,
        max,
    } = rule;
    let unit = match unit {
        TtlUnit::Seconds => "seconds",
        TtlUnit::Milliseconds => "milliseconds",
    };
    let (name, unit) = (text(header.as_str()), text(unit));
    let (min, max) = (span(*min), span(*max));
    format!("{{ name = {name}, unit = {unit}, min = {min}, max = {max} }}")
}

fn section(out: &mut String, title: &str) -> fmt::Result {
    writeln!(out, "\n# {title}")
}

fn line(out: &mut String, name: &str, value: impl Display) -> fmt::Result {
    writeln!(out, "{name} = {value}")
}

fn text(text: &str) -> String {
    toml::Value::from(text).to_string()
}

fn span(span: Duration) -> String {
    text(&shown(millis(span)))
}

fn or_none(value: Option<String>) -> String {
    value.unwrap_or_else(|| text(NONE))
}

fn list<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    let items = items.into_iter().map(|item| text(&item.to_string()));
    format!("[{}]", items.collect::<Vec<_>>().join(", "))
}
