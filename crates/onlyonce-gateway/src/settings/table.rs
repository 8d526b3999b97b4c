//! The one table of routes: the first that matches decides, and its parameters go with the request.

use http::Method;
use onlyonce_tower::PathParams;

use crate::config::{ConfigError, Match};

/// The patterns of all routes in their order, each compiled once.
pub(crate) struct RouteTable(Vec<Pattern>);

struct Pattern {
    method: Option<Method>,
    path: matchit::Router<()>,
}

/// A route that matches a request.
pub(crate) struct Found {
    pub(crate) number: usize,
    pub(crate) params: PathParams,
}

impl RouteTable {
    pub(crate) fn of<'a>(routes: impl IntoIterator<Item = &'a Match>) -> Result<Self, ConfigError> {
        let pattern = |matches: &Match| {
            Ok(Pattern {
                method: matches.method.clone(),
                path: matches.matcher()?,
            })
        };
        let patterns = routes.into_iter().map(pattern);
        Ok(Self(patterns.collect::<Result<_, _>>()?))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first route that matches, and the parameters of the path.
    pub(crate) fn find(&self, method: &Method, path: &str) -> Option<Found> {
        let mut patterns = self.0.iter().enumerate();
        patterns.find_map(|(number, pattern)| {
            let params = pattern.takes(method).then(|| pattern.params(path))??;
            Some(Found { number, params })
        })
    }

    /// The number of the first route that matches.
    pub(crate) fn number_of(&self, method: &Method, path: &str) -> Option<usize> {
        let matches = |it: &Pattern| it.takes(method) && it.path.at(path).is_ok();
        self.0.iter().position(matches)
    }

    /// The parameters of a path on one route, if that matches it.
    pub(crate) fn params(&self, number: usize, path: &str) -> Option<PathParams> {
        self.0[number].params(path)
    }

    /// Whether a route before this one gets every request of its method for the path.
    pub(crate) fn is_taken_before(&self, number: usize, path: &str) -> bool {
        let own = self.0.get(number).and_then(|it| it.method.as_ref());
        self.0[..number].iter().any(|earlier| {
            let is_wider = earlier.method.is_none() || earlier.method.as_ref() == own;
            is_wider && earlier.path.at(path).is_ok()
        })
    }
}

impl Pattern {
    fn takes(&self, method: &Method) -> bool {
        self.method.as_ref().is_none_or(|own| own == method)
    }

    fn params(&self, path: &str) -> Option<PathParams> {
        let found = self.path.at(path).ok()?;
        Some(PathParams::new(found.params.iter()))
    }
}
