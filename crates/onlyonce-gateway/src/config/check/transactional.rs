//! Routes whose upstreams complete records themselves: whether store and contract are fit for that.

use onlyonce_core::OnLapse;

use super::Finding;
use crate::config::{Config, Route};

pub(super) fn transactional(config: &Config) -> Vec<Finding> {
    let routes = config.route.iter().enumerate();
    let routes = routes.filter(|(_, route)| route.transactional);
    routes
        .filter_map(|(number, route)| {
            let why = unfit(config, route)?;
            let why = format!("route {}: transactional = true: {why}", route.matches);
            let at = format!("route.{number}.transactional");
            Finding::new(at, &["store", "profile", "profiles", "rules"], why)
        })
        .collect()
}

fn unfit(config: &Config, route: &Route) -> Option<String> {
    if route.pass {
        return Some("nothing is completed on a route that passes everything through: remove one of `pass` and `transactional`".to_owned());
    }
    let url = config.store.as_deref().unwrap_or("file:./onlyonce-data");
    // A URL that cannot be read is a finding of its own.
    if onlyonce_stores::check_url(url).is_ok()
        && let Err(error) = onlyonce_stores::completion_sql(url)
    {
        return Some(format!("the store is not fit for it: {error}"));
    }
    match config.policy(Some(route)).ok()?.on_lapse {
        OnLapse::Rerun => None,
        OnLapse::Hold => Some(
            "an attempt that did not commit did not happen, and can run again: add rules.on_lapse = \"rerun\", \
             for with \"hold\" an operator would have to say so"
                .to_owned(),
        ),
    }
}
