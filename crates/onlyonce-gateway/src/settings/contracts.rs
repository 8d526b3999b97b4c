//! The contract of each route, and of what no route matches, each made once.

use std::collections::BTreeMap;

use onlyonce_core::Policy;
use onlyonce_core::profile::Rules;

use crate::config::{Config, Wrong};

type Made = Result<Policy, Wrong>;

/// All contracts of the settings, or why there is none.
pub(super) struct Contracts {
    routes: Vec<Made>,
    rest: Made,
}

impl Contracts {
    pub(super) fn of(config: &Config) -> Self {
        // A profile may be a file: each is read once.
        let mut bases: BTreeMap<Option<&str>, Result<Rules, String>> = BTreeMap::new();
        let mut made = |number: Option<usize>| {
            let route = number.map(|number| &config.route[number]);
            let named = config.base_of(route);
            let base = bases.entry(named.map(|it| it.as_str()));
            let base = base.or_insert_with(|| config.rules_of(named)).clone();
            config.policy_over(base, route)
        };
        Self {
            rest: made(None),
            routes: (0..config.route.len()).map(|it| made(Some(it))).collect(),
        }
    }

    /// That of a route, by its number, or of what no route matches.
    pub(super) fn of_route(&self, number: Option<usize>) -> &Made {
        match number {
            Some(number) => &self.routes[number],
            None => &self.rest,
        }
    }

    /// Those that hold for some request, as far as there are any.
    pub(super) fn in_force<'a>(&'a self, config: &'a Config) -> impl Iterator<Item = &'a Policy> {
        let routes = config.route.iter().zip(&self.routes);
        let routes = routes.filter(|(route, _)| !route.pass);
        let all = routes.map(|(_, made)| made).chain([&self.rest]);
        all.filter_map(|made| made.as_ref().ok())
    }
}
