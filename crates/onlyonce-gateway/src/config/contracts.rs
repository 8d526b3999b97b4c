//! Which contract holds for which requests: a profile by its name or file, `[rules]` over it, and a
//! route's own over those.

use std::path::Path;

use onlyonce_core::policy::Policy;
use onlyonce_core::profile::{RuleError, Rules};
use onlyonce_core::{Profile, profile};
use onlyonce_stores::nearest;

use super::{Config, ProfileName, Route};

/// A profile whose bases go deeper than this is its own base.
const BASES_MAX: usize = 16;

/// Why there is no contract: the setting that is wrong, as in `rules.key`, and why.
pub(crate) type Wrong = (String, String);

impl Config {
    /// The policy of a route, or of what no route matches.
    pub(crate) fn policy(&self, route: Option<&Route>) -> Result<Policy, Wrong> {
        let own_profile = route.and_then(|route| route.profile.as_ref());
        let named = own_profile.or(self.profile.as_ref());
        let base = self.rules_of(named).map_err(|why| {
            let at = match (route, own_profile) {
                (Some(route), Some(_)) => format!("route.{}.profile", self.number(route)),
                _ => "profile".to_owned(),
            };
            (at, why)
        })?;
        let general = general(&self.rules, self.ttl, self.scope.as_ref());
        let (own, prefix) = match route {
            Some(route) => (
                general_of(route),
                format!("route.{}.rules.", self.number(route)),
            ),
            None => (Rules::default(), "rules.".to_owned()),
        };
        own.over(general)
            .over(base)
            .policy()
            .map_err(|RuleError { at, why }| (format!("{prefix}{at}"), format!("{at}: {why}")))
    }

    /// The rules of a profile: a preset's, those in `[profiles.NAME]`, or those in a file.
    fn rules_of(&self, name: Option<&ProfileName>) -> Result<Rules, String> {
        let Some(name) = name else {
            return Ok(profile::usual().rules().clone());
        };
        let mut rules = Rules::default();
        let mut name = name.as_str().to_owned();
        for _ in 0..BASES_MAX {
            if let Ok(preset) = name.parse::<Profile>() {
                return Ok(rules.over(preset.rules().clone()));
            }
            let own = self.written(&name)?;
            let base = own.base.clone();
            rules = rules.over(own);
            match base {
                Some(base) => name = base,
                None => return Ok(rules.over(profile::usual().rules().clone())),
            }
        }
        Err(format!(
            "profile `{name}` is its own base: name a preset at the end, like base = \"standard\""
        ))
    }

    /// The rules that somebody wrote themselves.
    fn written(&self, name: &str) -> Result<Rules, String> {
        if let Some(rules) = self.profiles.get(name) {
            return Ok(rules.clone());
        }
        if ProfileName::is_path(name) {
            let text = std::fs::read_to_string(Path::new(name))
                .map_err(|error| format!("profile {name}: cannot be read: {error}"))?;
            return Rules::read(&text).map_err(|error| format!("profile {name}: {error}"));
        }
        let presets = profile::all().map(|preset| preset.name());
        let own = self.profiles.keys().map(String::as_str);
        let names: Vec<&str> = presets.into_iter().chain(own).collect();
        let hint = match nearest(name, &names) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!(
                "there are {}; your own goes into [profiles.{name}], or a file, as in profile = \
                 \"./{name}.toml\"",
                names.join(", ")
            ),
        };
        Err(format!("there is no profile `{name}`; {hint}"))
    }

    fn number(&self, route: &Route) -> usize {
        let found = self.route.iter().position(|it| std::ptr::eq(it, route));
        found.unwrap_or_default()
    }
}

fn general_of(route: &Route) -> Rules {
    general(&route.rules, route.ttl, route.scope.as_ref())
}

/// Rules with what stands beside them: `ttl` and `scope` have a place of their own, too.
fn general(
    rules: &Rules,
    ttl: Option<profile::Retention>,
    scope: Option<&Vec<onlyonce_core::policy::ScopePart>>,
) -> Rules {
    Rules {
        ttl: ttl.or(rules.ttl),
        scope: scope.or(rules.scope.as_ref()).cloned(),
        ..rules.clone()
    }
}
