//! What is said of an upstream's keys where it cannot hold.

use onlyonce_core::profile::Lapse;

use super::Findings;
use crate::config::Config;
use crate::settings::defaults;

pub(super) fn upstream_keys(config: &Config, findings: &mut Findings) {
    for (number, route) in config.route.iter().enumerate() {
        let mut note = |setting: &str, why: &str| {
            findings.note(
                format!("route.{number}.{setting}"),
                format!("{setting}: {why}"),
            );
        };
        let passes =
            "the route passes everything through, without an operation's id: remove `pass`";
        if route.pass && route.upstream_key_in.is_some() {
            note("upstream_key_in", passes);
        }
        if route.pass && route.upstream_keys {
            note("upstream_keys", passes);
        }
        if route.upstream_keys && route.rules.on_lapse == Some(Lapse::Hold) {
            let why = "an upstream that takes keys is asked again, and `on_lapse = \"hold\"` asks it \
                       never: remove one of the two";
            note("upstream_keys", why);
        }
        let headers = config
            .identity
            .headers
            .unwrap_or(defaults::IDENTITY_HEADERS);
        let is_told = headers || route.upstream_key_in.is_some();
        if route.upstream_keys && !is_told {
            let why = "the upstream does not get the id: give `upstream_key_in`, as in \
                       upstream_key_in = \"header:idempotency-key\", or remove `headers = false` \
                       from [identity]";
            note("upstream_keys", why);
        }
    }
}
