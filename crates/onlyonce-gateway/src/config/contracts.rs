//! Which contract holds for which requests: a profile by its name or file, `[rules]` over it, and a
//! route's own over those.

use std::path::Path;

use http::Method;
use onlyonce_core::policy::Policy;
use onlyonce_core::profile::{RuleError, Rules};
use onlyonce_core::{OnLapse, Profile, profile};
use onlyonce_stores::nearest;

use super::{Config, ConfigError, ProfileName, Route};
use crate::settings::{RouteTable, defaults};

/// A profile whose bases go deeper than this is its own base.
const BASES_MAX: usize = 16;
/// Why there is no contract: the setting that is wrong, as in `rules.key`, and why.
pub(crate) type Wrong = (String, String);

/// What the settings promise to a request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Contract {
    /// It runs once, by these rules.
    Once {
        /// The `match` of its route; none where no route matches.
        route: Option<String>,
        /// The name or file of its profile.
        profile: String,
        /// The rules.
        policy: Box<Policy>,
    },
    /// It passes through, unprotected, by the route with this `match`.
    Passes(String),
    /// It passes through and is observed, by the route with this `match`; none where no route matches.
    Observed(Option<String>),
    /// It has nowhere to go: no route matches, and there is no general upstream.
    Nowhere,
}

impl Config {
    /// The store's URL: as it is set, or the default.
    pub fn store_url(&self) -> &str {
        self.store.as_deref().unwrap_or(defaults::STORE)
    }

    /// The name or file of the general profile.
    pub fn profile_name(&self) -> &str {
        let named = self.profile.as_ref().map(ProfileName::as_str);
        named.unwrap_or(defaults::profile().name())
    }

    /// The contract of requests with this method and path, found as a gateway with these settings
    /// would find it.
    pub fn contract_of(&self, method: &Method, path: &str) -> Result<Contract, ConfigError> {
        let normal = crate::path::normal(path)
            .map_err(|_| ConfigError::new(path, "the gateway refuses such a path with 400"))?;
        let path = normal.as_deref().unwrap_or(path);
        let table = RouteTable::of(self.route.iter().map(|route| &route.matches))?;
        let found = table.number_of(method, path);
        let found = found.map(|number| &self.route[number]);
        match found {
            Some(route) if route.pass => return Ok(Contract::Passes(route.matches.to_string())),
            None if self.upstream.is_none() => return Ok(Contract::Nowhere),
            found if self.is_observed(found) => {
                let route = found.map(|route| route.matches.to_string());
                return Ok(Contract::Observed(route));
            }
            Some(_) | None => {}
        }
        let own = found.and_then(|route| route.profile.as_ref());
        let profile = own.map_or(self.profile_name(), ProfileName::as_str);
        let policy = self.policy(found);
        Ok(Contract::Once {
            route: found.map(|route| route.matches.to_string()),
            profile: profile.to_owned(),
            policy: Box::new(policy.map_err(|(at, why)| ConfigError::new(at, why))?),
        })
    }

    /// The policy of a route, or of what no route matches.
    pub(crate) fn policy(&self, route: Option<&Route>) -> Result<Policy, Wrong> {
        self.policy_over(self.rules_of(self.base_of(route)), route)
    }

    /// The profile that a route has, its own or the general one.
    pub(crate) fn base_of<'a>(&'a self, route: Option<&'a Route>) -> Option<&'a ProfileName> {
        let own = route.and_then(|route| route.profile.as_ref());
        own.or(self.profile.as_ref())
    }

    /// The policy of a route, given the rules of its profile.
    pub(crate) fn policy_over(
        &self,
        base: Result<Rules, String>,
        route: Option<&Route>,
    ) -> Result<Policy, Wrong> {
        let own_profile = route.and_then(|route| route.profile.as_ref());
        let base = base.map_err(|why| {
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
        let policy = own.over(general).over(base).policy();
        let mut policy = policy
            .map_err(|RuleError { at, why }| (format!("{prefix}{at}"), format!("{at}: {why}")))?;
        if route.is_some_and(|route| route.upstream_keys) {
            policy.on_lapse = OnLapse::Rerun;
        }
        Ok(policy)
    }

    /// The rules of a profile: a preset's, those in `[profiles.NAME]`, or those in a file.
    pub(crate) fn rules_of(&self, name: Option<&ProfileName>) -> Result<Rules, String> {
        let Some(name) = name else {
            return Ok(defaults::profile().rules().clone());
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
                None => return Ok(rules.over(defaults::profile().rules().clone())),
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
