//! The settings of a route.

use crate::config::{Lookup, Mcp, Protocol, Route};
use crate::settings::{Settings, defaults};

use super::{List, MASK, NONE, list, request, text, word};

impl List {
    /// What a route says of itself; what it leaves to the gateway is not told again.
    pub(super) fn route(&mut self, number: usize, route: &Route, settings: &Settings) {
        let Route {
            matches,
            operation,
            upstream,
            profile,
            mode,
            scope: _,
            ttl: _,
            auth_check,
            upstream_key_in,
            upstream_keys,
            reconcile,
            rules: _,
            transactional,
            pass,
            protocol,
            mcp,
        } = route;
        let at = format!("route.{number}");
        let name = |of: &str| format!("{at}.{of}");
        let in_force = &settings.routes.all[number];
        self.value(name("match"), true, matches.to_string());
        let named = operation.as_ref().map(|it| it.name());
        self.add(&name("operation"), named, text, "its path");
        let to = &*in_force.upstream_shown;
        self.value(name("upstream"), upstream.is_some(), to);
        self.value(name("profile"), profile.is_some(), &*in_force.profile);
        let general_mode = settings.config().mode;
        let in_mode = mode.or(general_mode).unwrap_or(defaults::MODE);
        self.value(name("mode"), mode.is_some(), word(in_mode));
        let check = in_force.auth_check.as_ref();
        let check = check.map_or(NONE.to_owned(), request);
        self.value(name("auth_check"), auth_check.is_some(), check);
        self.add(
            &name("upstream_key_in"),
            upstream_key_in.as_ref(),
            text,
            NONE,
        );
        self.value(
            name("upstream_keys"),
            *upstream_keys,
            upstream_keys.to_string(),
        );
        self.add(&name("reconcile"), reconcile.as_ref(), looked_up, NONE);
        self.value(
            name("transactional"),
            *transactional,
            transactional.to_string(),
        );
        self.value(name("pass"), *pass, pass.to_string());
        match protocol {
            Protocol::Http => self.value(name("protocol"), false, "http"),
            Protocol::Mcp => self.mcp(&at, mcp),
        }
    }

    fn mcp(&mut self, at: &str, mcp: &Mcp) {
        let Mcp {
            origins,
            tools,
            except,
            call_ids,
            reconcile,
        } = mcp;
        let name = |of: &str| format!("{at}.{of}");
        let all = if tools.is_empty() {
            "all".to_owned()
        } else {
            list(tools)
        };
        self.value(name("protocol"), true, "mcp");
        self.value(name("mcp.origins"), !origins.is_empty(), list(origins));
        self.value(name("mcp.tools"), !tools.is_empty(), all);
        self.value(name("mcp.except"), !except.is_empty(), list(except));
        self.value(name("mcp.call_ids"), !call_ids.is_empty(), list(call_ids));
        // What a tool is asked with may be anything.
        let rules = reconcile.iter().map(|_| MASK);
        self.value(name("mcp.reconcile"), !reconcile.is_empty(), list(rules));
    }
}

fn looked_up(lookup: &Lookup) -> String {
    let ask = &lookup.table().ask;
    let target = ask.to_string();
    match target.split_once('?') {
        Some((path, _)) => format!("{path}?{MASK}"),
        None => target,
    }
}
