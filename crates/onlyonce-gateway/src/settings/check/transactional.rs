//! Routes whose upstreams complete records themselves: whether store and contract are fit for that.

use onlyonce_core::OnLapse;

use super::{Contracts, Findings};
use crate::config::{Config, Route};

pub(super) fn transactional(config: &Config, contracts: &Contracts, findings: &mut Findings) {
    let routes = config.route.iter().enumerate();
    for (number, route) in routes.filter(|(_, route)| route.transactional) {
        if let Some(why) = unfit(config, contracts, number, route) {
            let why = format!("route {}: transactional = true: {why}", route.matches);
            let about = &["store", "profile", "profiles", "rules"];
            findings.note_about(about, format!("route.{number}.transactional"), why);
        }
    }
}

fn unfit(config: &Config, contracts: &Contracts, number: usize, route: &Route) -> Option<String> {
    if route.pass {
        return Some("nothing is completed on a route that passes everything through: remove one of `pass` and `transactional`".to_owned());
    }
    let url = config.store_url();
    // A URL that cannot be read is a finding of its own.
    if onlyonce_stores::check_url(url).is_ok()
        && let Err(error) = onlyonce_stores::completion_sql(url)
    {
        return Some(format!("the store is not fit for it: {error}"));
    }
    match contracts.of_route(Some(number)).as_ref().ok()?.on_lapse {
        OnLapse::Rerun => None,
        OnLapse::Hold => Some(
            "an attempt that did not commit did not happen, and can run again: add rules.on_lapse = \"rerun\", \
             for with \"hold\" an operator would have to say so"
                .to_owned(),
        ),
    }
}
