//! What an operator should know of settings that hold.

use std::fmt;

use onlyonce_core::policy::{ScopePart, StoreDown};

use super::Settings;
use super::routes::RouteSettings;

/// Something that an operator should know of the settings, and the setting that ends it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Warning {
    /// The setting that ends it.
    pub setting: &'static str,
    /// What there is to know.
    pub text: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (set `{}`)", self.text, self.setting)
    }
}

impl Settings {
    /// What an operator should know before these settings meet callers.
    pub fn warnings(&self) -> Vec<Warning> {
        let mut warnings = Vec::new();
        let mut warn = |setting, text| warnings.push(Warning { setting, text });
        let vague = self.named(|route| !route.passes() && !tells_callers_apart(route));
        if !vague.is_empty() {
            warn(
                "scope",
                format!(
                    "callers are told apart only by their Authorization header, which is not verified \
                     here: anonymous callers share one scope, a refreshed opaque token counts as another \
                     caller, and credentials that differ with every request (SigV4, DPoP, Digest) are \
                     refused; add [jwt] and `jwt:CLAIM`, `trusted-header:NAME` or `cookie:NAME` to the \
                     scope of: {vague}"
                ),
            );
        }
        if onlyonce_stores::backend(&self.storage.url) == "memory" {
            warn(
                "store",
                "answers are kept in memory: a restart forgets them, and each retry after it \
                 runs again"
                    .to_owned(),
            );
        }
        let observed = self.named(RouteSettings::is_observed);
        if !observed.is_empty() {
            warn(
                "mode",
                format!(
                    "nothing is protected here, only observed: {observed}; `onlyonce observe report` \
                     says what enforcing would do"
                ),
            );
        }
        let unguarded =
            self.named(|route| route.enforces() && route.policy.store_down == StoreDown::Open);
        if !unguarded.is_empty() {
            warn(
                "rules.store_down",
                format!(
                    "while the store cannot be reached, requests run without protection: {unguarded}"
                ),
            );
        }
        warnings
    }

    /// The routes of which something is true, and the rest, in words.
    fn named(&self, is_meant: impl Fn(&RouteSettings) -> bool) -> String {
        let meant = self.routes.each().filter(|route| is_meant(route));
        let names = meant.map(|route| match &route.matches {
            Some(matches) => format!("route {matches}"),
            None => "requests that no route matches".to_owned(),
        });
        names.collect::<Vec<_>>().join(", ")
    }
}

/// Whether a route knows callers by more than what they say of themselves.
fn tells_callers_apart(route: &RouteSettings) -> bool {
    let known = |part: &ScopePart| match part {
        ScopePart::Jwt(_) | ScopePart::Cookie(_) | ScopePart::UserHeader(_) => true,
        ScopePart::Header { trusted, .. } => *trusted,
        ScopePart::Route
        | ScopePart::Caller
        | ScopePart::Path(_)
        | ScopePart::PathAfter(_)
        | ScopePart::Body(_) => false,
    };
    route.policy.http.scope.iter().any(known)
}
