//! The tables of a file of settings.

use crate::config::{
    Algorithm, Audit, Breaker, Identity, Jwt, Limits, Log, LogFormat, LogLevel, Timeouts, Tls,
};
use crate::settings::Settings;

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

    pub(super) fn identity(&mut self, identity: &Identity, settings: &Settings) {
        let Identity {
            operation_header,
            attempt_header,
            headers,
        } = identity;
        let names = &settings.names;
        for (name, is_given, value) in [
            (
                "operation_header",
                operation_header.is_some(),
                text(&names.operation),
            ),
            (
                "attempt_header",
                attempt_header.is_some(),
                text(&names.attempt),
            ),
            ("headers", headers.is_some(), text(names.are_sent)),
        ] {
            self.value(format!("identity.{name}"), is_given, value);
        }
    }

    pub(super) fn breaker(&mut self, breaker: &Breaker, settings: &Settings) {
        let Breaker {
            failures,
            reset,
            probe,
        } = breaker;
        let in_force = settings.storage.breaker;
        for (name, is_given, value) in [
            ("failures", failures.is_some(), text(in_force.failures)),
            ("reset", reset.is_some(), span(in_force.reset)),
            ("probe", probe.is_some(), span(in_force.probe)),
        ] {
            self.value(format!("breaker.{name}"), is_given, value);
        }
    }

    pub(super) fn limits(&mut self, limits: &Limits, settings: &Settings) {
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
        let in_force = &settings.limits;
        let caller = in_force.caller;
        let bound = |bound: Option<u64>| bound.map_or("any number".to_owned(), text);
        let address = in_force.address_header.as_ref();
        let address = address.map_or("the address of the connection".to_owned(), text);
        for (name, is_given, value) in [
            (
                "connections",
                connections.is_some(),
                text(in_force.connections),
            ),
            (
                "header_bytes",
                header_bytes.is_some(),
                text(in_force.header_bytes),
            ),
            ("streams", streams.is_some(), text(in_force.streams)),
            (
                "running",
                running.is_some(),
                text(settings.storage.running_max),
            ),
            (
                "buffered_bytes",
                buffered_bytes.is_some(),
                text(in_force.buffered_bytes),
            ),
            (
                "bad_requests_a_minute",
                bad_requests_a_minute.is_some(),
                text(caller.bad_requests_a_minute),
            ),
            (
                "keys_a_caller",
                keys_a_caller.is_some(),
                bound(caller.keys_max),
            ),
            (
                "bytes_a_caller",
                bytes_a_caller.is_some(),
                bound(caller.bytes_max),
            ),
            ("address_header", address_header.is_some(), address),
        ] {
            self.value(format!("limits.{name}"), is_given, value);
        }
    }

    pub(super) fn timeouts(&mut self, timeouts: &Timeouts, settings: &Settings) {
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
        let in_force = settings.timeouts;
        let (bodies, upstream) = (in_force.bodies, in_force.upstream);
        for (name, is_given, value) in [
            ("connect", connect.is_some(), upstream.connect_max),
            ("headers", headers.is_some(), in_force.headers),
            ("body", body.is_some(), bodies.pause_max),
            ("body_whole", body_whole.is_some(), bodies.whole_max),
            ("linger", linger.is_some(), bodies.linger.time_max),
            ("write", write.is_some(), in_force.write),
            ("response", response.is_some(), upstream.response_max),
            ("idle", idle.is_some(), in_force.idle),
            ("websocket", websocket.is_some(), in_force.websocket),
        ] {
            self.value(format!("timeouts.{name}"), is_given, span(value));
        }
    }

    pub(super) fn log(&mut self, log: &Log, settings: &Settings) {
        let Log {
            format,
            level,
            sample_info,
            sample_debug,
        } = log;
        let in_force = settings.log;
        let format_name = match in_force.format {
            LogFormat::Json => "json",
            LogFormat::Text => "text",
        };
        let level_name = match in_force.level {
            LogLevel::Debug => "debug",
            LogLevel::Info => "info",
            LogLevel::Warn => "warn",
            LogLevel::Error => "error",
        };
        self.value("log.format", format.is_some(), format_name);
        self.value("log.level", level.is_some(), level_name);
        let (info, debug) = (text(in_force.sample_info), text(in_force.sample_debug));
        self.value("log.sample_info", sample_info.is_some(), info);
        self.value("log.sample_debug", sample_debug.is_some(), debug);
    }

    pub(super) fn audit(&mut self, audit: Option<&Audit>, settings: &Settings) {
        let Some((given, in_force)) = audit.zip(settings.storage.audit.as_ref()) else {
            return self.value("audit", false, NONE);
        };
        let Audit {
            path,
            keep,
            file_bytes_max,
        } = given;
        let bytes_max = text(in_force.file_bytes_max);
        self.value("audit.path", true, file(path));
        self.value("audit.keep", keep.is_some(), span(in_force.keep));
        self.value("audit.file_bytes_max", file_bytes_max.is_some(), bytes_max);
    }
}
