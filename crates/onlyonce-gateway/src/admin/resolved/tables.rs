//! The tables of a file of settings.

use std::time::Duration;

use crate::config::{
    Algorithm, Audit, Breaker, Config, Count, FAILURES, Identity, Jwt, Limits, Log, LogFormat,
    LogLevel, PROBE, RESET, Span, Timeouts, Tls, UpstreamHeader,
};
use crate::gateway::{RUNNING_MAX, audit_settings};
use crate::identify::{ATTEMPT, OPERATION};
use crate::identity::allowance;
use crate::log::SAMPLE_DEBUG;
use crate::server::{
    CONNECTIONS_MAX, HEADER_BYTES_MAX, HEADERS_TIMEOUT, STREAMS_MAX, WRITE_PAUSE_MAX,
};
use crate::site::{IDLE_MAX, WEB_SOCKET_IDLE_MAX, body_patience, upstream_patience};

use super::{List, NONE, file, span, text};

impl List {
    pub(super) fn tls(&mut self, tls: Option<&Tls>) {
        let Some(Tls { cert, key }) = tls else {
            return self.value("tls", false, NONE);
        };
        self.value("tls.cert", true, file(cert));
        self.value("tls.key", true, file(key));
    }

    pub(super) fn jwt(&mut self, jwt: Option<&Jwt>) {
        let Some(Jwt {
            algorithm,
            key_file,
            issuer,
            audience,
        }) = jwt
        else {
            return self.value("jwt", false, NONE);
        };
        let of_key = "that of the key";
        let name = |it| match it {
            Algorithm::HS256 => "HS256".to_owned(),
            Algorithm::RS256 => "RS256".to_owned(),
            Algorithm::ES256 => "ES256".to_owned(),
        };
        self.add("jwt.algorithm", *algorithm, name, of_key);
        self.value("jwt.key_file", true, file(key_file));
        self.add("jwt.issuer", issuer.as_deref(), text, "any");
        self.add("jwt.audience", audience.as_deref(), text, "any");
    }

    pub(super) fn identity(&mut self, identity: &Identity) {
        let Identity {
            operation_header,
            attempt_header,
            headers,
        } = identity;
        let name = |it: &UpstreamHeader| it.name().to_string();
        self.add(
            "identity.operation_header",
            operation_header.as_ref(),
            name,
            OPERATION,
        );
        self.add(
            "identity.attempt_header",
            attempt_header.as_ref(),
            name,
            ATTEMPT,
        );
        self.add("identity.headers", *headers, text, true);
    }

    pub(super) fn breaker(&mut self, breaker: &Breaker) {
        let Breaker {
            failures,
            reset,
            probe,
        } = breaker;
        self.add("breaker.failures", failures.map(Count::get), text, FAILURES);
        self.add("breaker.reset", reset.map(Span::get), span, span(RESET));
        self.add("breaker.probe", probe.map(Span::get), span, span(PROBE));
    }

    pub(super) fn limits(&mut self, config: &Config, limits: &Limits) {
        let Limits {
            connections,
            header_bytes,
            streams,
            running,
            buffered_bytes,
            bad_requests_a_minute,
            keys_a_caller,
            bytes_a_caller,
            address_header,
        } = limits;
        let bad_usual = allowance(limits).bad_requests_a_minute;
        let bad = bad_requests_a_minute.map(Count::get);
        let connection = "the address of the connection";
        self.add(
            "limits.connections",
            connections.map(Count::get),
            text,
            CONNECTIONS_MAX,
        );
        self.add(
            "limits.header_bytes",
            header_bytes.map(Count::get),
            text,
            HEADER_BYTES_MAX,
        );
        self.add("limits.streams", streams.map(Count::get), text, STREAMS_MAX);
        self.add("limits.running", running.map(Count::get), text, RUNNING_MAX);
        let buffered = config.buffered_bytes().to_string();
        self.value("limits.buffered_bytes", buffered_bytes.is_some(), buffered);
        self.add("limits.bad_requests_a_minute", bad, text, bad_usual);
        self.add(
            "limits.keys_a_caller",
            keys_a_caller.map(Count::get),
            text,
            "any number",
        );
        self.add(
            "limits.bytes_a_caller",
            bytes_a_caller.map(Count::get),
            text,
            "any number",
        );
        self.add(
            "limits.address_header",
            address_header.as_deref(),
            text,
            connection,
        );
    }

    pub(super) fn timeouts(&mut self, config: &Config, timeouts: &Timeouts) {
        let Timeouts {
            connect,
            headers,
            body,
            body_whole,
            linger,
            write,
            response,
            idle,
            websocket,
        } = timeouts;
        let (bodies, upstream) = (body_patience(config), upstream_patience(config));
        let usually = |given: Option<Duration>, usual| given.unwrap_or(usual);
        let headers_max = usually(headers.map(Span::get), HEADERS_TIMEOUT);
        let write_max = usually(write.map(Span::get), WRITE_PAUSE_MAX);
        let idle_max = usually(idle.map(Span::get), IDLE_MAX);
        let web_socket_max = usually(websocket.map(Span::get), WEB_SOCKET_IDLE_MAX);
        for (name, is_given, value) in [
            ("connect", connect.is_some(), upstream.connect_max),
            ("headers", headers.is_some(), headers_max),
            ("body", body.is_some(), bodies.pause_max),
            ("body_whole", body_whole.is_some(), bodies.whole_max),
            ("linger", linger.is_some(), bodies.linger.time_max),
            ("write", write.is_some(), write_max),
            ("response", response.is_some(), upstream.response_max),
            ("idle", idle.is_some(), idle_max),
            ("websocket", websocket.is_some(), web_socket_max),
        ] {
            self.value(format!("timeouts.{name}"), is_given, span(value));
        }
    }

    pub(super) fn log(&mut self, log: &Log) {
        let Log {
            format,
            level,
            sample_info,
            sample_debug,
        } = log;
        let format_name = |it| match it {
            LogFormat::Json => "json".to_owned(),
            LogFormat::Text => "text".to_owned(),
        };
        let level_name = |it| match it {
            LogLevel::Debug => "debug".to_owned(),
            LogLevel::Info => "info".to_owned(),
            LogLevel::Warn => "warn".to_owned(),
            LogLevel::Error => "error".to_owned(),
        };
        self.add(
            "log.format",
            *format,
            format_name,
            format_name(LogFormat::Json),
        );
        self.add("log.level", *level, level_name, level_name(LogLevel::Warn));
        self.add("log.sample_info", sample_info.map(Count::get), text, 1);
        self.add(
            "log.sample_debug",
            sample_debug.map(Count::get),
            text,
            SAMPLE_DEBUG,
        );
    }

    pub(super) fn audit(&mut self, audit: Option<&Audit>) {
        let Some(given) = audit else {
            return self.value("audit", false, NONE);
        };
        let Audit {
            path,
            keep,
            file_bytes_max,
        } = given;
        let settings = audit_settings(given);
        let bytes_max = settings.file_bytes_max.to_string();
        self.value("audit.path", true, file(path));
        self.value("audit.keep", keep.is_some(), span(settings.keep));
        self.value("audit.file_bytes_max", file_bytes_max.is_some(), bytes_max);
    }
}
