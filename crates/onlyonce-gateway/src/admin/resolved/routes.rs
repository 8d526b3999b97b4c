//! The settings of a route.

use onlyonce_stores::shown;

use crate::config::{Config, Lookup, Mcp, Mode, Protocol, Route};

use super::{List, MASK, NONE, list, request, text, word};

impl List {
    /// What a route says of itself; what it leaves to the gateway is not told again.
    pub(super) fn route(&mut self, at: &str, config: &Config, route: &Route) {
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
        let usual_upstream = config.upstream.as_deref().map_or(NONE.to_owned(), shown);
        let usual_mode = word(config.mode.unwrap_or(Mode::Enforce));
        let usual_check = config.auth_check.as_ref().map_or(NONE.to_owned(), request);
        let name = |of: &str| format!("{at}.{of}");
        self.value(name("match"), true, matches.to_string());
        let named = operation.as_ref().map(|it| it.name());
        self.add(&name("operation"), named, text, "its path");
        self.add(
            &name("upstream"),
            upstream.as_deref(),
            shown,
            usual_upstream,
        );
        let named = profile.as_ref().map(|it| it.as_str());
        self.add(&name("profile"), named, text, config.profile_name());
        self.add(&name("mode"), *mode, word, usual_mode);
        self.add(
            &name("auth_check"),
            auth_check.as_ref(),
            request,
            usual_check,
        );
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
            Protocol::Mcp => self.mcp(at, mcp),
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
