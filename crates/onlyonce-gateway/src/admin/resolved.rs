//! Every setting as it is in force: what was given, or else what holds without it. For operators to
//! read, so nothing in it is secret: URLs are shown without credentials, their options and the queries
//! of requests are masked, and of a secret there is only the file that it is in.
//!
//! Each structure of what was given is taken apart by name, so that a new setting does not compile until it is
//! here; the values are those of the checked settings.

use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

use onlyonce_stores::shown;

use super::health::SettingView;
use crate::config::{Ask, Config, Mode};
use crate::settings::{Settings, defaults};

mod routes;
mod tables;
#[cfg(test)]
mod tests;

const NONE: &str = "none";
const MASK: &str = "***";

/// All settings but `rules`, `scope` and `ttl`, which the contract of each route has.
pub(crate) fn resolved(settings: &Settings) -> Vec<SettingView> {
    let Config {
        listen,
        admin,
        admin_token_file,
        admin_hosts,
        ready_upstreams,
        upstream,
        store,
        profile,
        profiles,
        mode,
        scope: _,
        ttl: _,
        namespace,
        instance,
        secret_file,
        former_secret_file,
        drain,
        tls,
        jwt,
        auth_check,
        identity,
        breaker,
        limits,
        timeouts,
        log,
        audit,
        rules: _,
        route,
    } = settings.config();
    let mut all = List::default();
    all.value("listen", listen.is_some(), text(settings.listen));
    let operators = &settings.operators;
    all.value("admin", admin.is_some(), text(operators.address));
    all.add("admin_token_file", admin_token_file.as_deref(), file, NONE);
    let any = match admin_token_file {
        Some(_) => "any",
        None => "this machine's, and that of `admin`",
    };
    all.add(
        "admin_hosts",
        admin_hosts.as_deref(),
        |it| list(it.iter().map(|it| it.as_str())),
        any,
    );
    let needs_upstreams = text(operators.needs_upstreams);
    all.value(
        "ready_upstreams",
        ready_upstreams.is_some(),
        needs_upstreams,
    );
    all.add("upstream", upstream.as_deref(), shown, NONE);
    all.value("store", store.is_some(), masked(&settings.storage.url));
    let general_profile = settings.config().profile_name();
    all.value("profile", profile.is_some(), general_profile);
    all.value("profiles", !profiles.is_empty(), list(profiles.keys()));
    let general_mode = word(mode.unwrap_or(defaults::MODE));
    all.value("mode", mode.is_some(), general_mode);
    all.add("namespace", namespace.as_deref(), text, NONE);
    all.add("instance", instance.as_deref(), text, "a random name");
    all.add(
        "secret_file",
        secret_file.as_deref(),
        file,
        "the store keeps it",
    );
    all.add(
        "former_secret_file",
        former_secret_file.as_deref(),
        file,
        NONE,
    );
    all.value("drain", drain.is_some(), span(settings.drain));
    all.tls(tls.as_ref());
    all.jwt(jwt.as_ref());
    all.add("auth_check", auth_check.as_ref(), request, NONE);
    all.identity(identity, settings);
    all.breaker(breaker, settings);
    all.limits(limits, settings);
    all.timeouts(timeouts, settings);
    all.log(log, settings);
    all.audit(audit.as_ref(), settings);
    for (number, route) in route.iter().enumerate() {
        all.route(number, route, settings);
    }
    all.0
}

#[derive(Default)]
struct List(Vec<SettingView>);

impl List {
    fn value(&mut self, name: impl Into<String>, is_given: bool, value: impl Into<String>) {
        let value = value.into();
        let value = if value.is_empty() {
            NONE.to_owned()
        } else {
            value
        };
        self.0.push(SettingView {
            name: name.into(),
            value,
            given: is_given,
        });
    }

    fn add<T>(
        &mut self,
        name: &str,
        given: Option<T>,
        show: impl FnOnce(T) -> String,
        usual: impl Display,
    ) {
        let is_given = given.is_some();
        let value = given.map_or_else(|| usual.to_string(), show);
        self.value(name, is_given, value);
    }
}

fn text(value: impl Display) -> String {
    value.to_string()
}

fn list(items: impl IntoIterator<Item = impl Display>) -> String {
    let items: Vec<String> = items.into_iter().map(text).collect();
    items.join(", ")
}

fn file(path: &Path) -> String {
    path.display().to_string()
}

fn span(span: Duration) -> String {
    humantime::format_duration(span).to_string()
}

fn word(mode: Mode) -> String {
    match mode {
        Mode::Enforce => "enforce".to_owned(),
        Mode::Observe => "observe".to_owned(),
    }
}

/// A URL without credentials, and which options it has.
fn masked(url: &str) -> String {
    let options = url.split_once('?').map_or("", |(_, options)| options);
    let names = options.split('&').filter_map(|it| it.split('=').next());
    let names = names.filter(|name| !name.is_empty());
    let masked: Vec<String> = names.map(|name| format!("{name}={MASK}")).collect();
    match masked.as_slice() {
        [] => shown(url),
        [_, ..] => format!("{}?{}", shown(url), masked.join("&")),
    }
}

fn request(ask: &Ask) -> String {
    let query = ask
        .target
        .query()
        .map_or(String::new(), |_| format!("?{MASK}"));
    format!("{} {}{query}", ask.method, ask.target.path())
}
