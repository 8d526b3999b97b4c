//! Whether all gateways on a store tell callers apart alike: what each route's scope is goes into the store, and
//! a start that finds another one there says so.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use onlyonce_core::Engine;

use crate::settings::Settings;

/// Routes that are noted at a time.
const AT_ONCE: usize = 16;
/// A store that is slower is not waited for.
pub(crate) const NOTING_MAX: Duration = Duration::from_secs(5);

/// A route, and the parts of a request that address its records, as they are written.
pub(crate) struct RouteScope {
    route: String,
    parts: String,
}

/// The scopes of the routes whose contract holds.
pub(crate) fn of(settings: &Settings) -> Vec<RouteScope> {
    let routes = settings.routes.each().filter(|route| route.enforces());
    let scoped = routes.map(|route| {
        let parts = route.policy.http.scope.iter();
        let parts: Vec<String> = parts.map(ToString::to_string).collect();
        RouteScope {
            route: route.name(),
            parts: parts.join(", "),
        }
    });
    scoped.collect()
}

/// Notes them in the store, and warns of each that another process has otherwise.
pub(crate) async fn note(scopes: Vec<RouteScope>, engine: &Engine) {
    let noting = stream::iter(scopes).for_each_concurrent(AT_ONCE, |scope| async move {
        let RouteScope { route, parts } = scope;
        match engine.note_scope(&route, &parts).await {
            Ok(None) => {}
            Ok(Some(there)) => warn_of(&route, &parts, &there),
            Err(error) => tracing::warn!(
                target: "onlyonce",
                route,
                error = %error,
                "it cannot be seen whether others on this store have the same scope for this route"
            ),
        }
    });
    if tokio::time::timeout(NOTING_MAX, noting).await.is_err() {
        tracing::warn!(
            target: "onlyonce",
            "it cannot be seen in time whether others on this store have the same scopes"
        );
    }
}

fn warn_of(route: &str, here: &str, there: &Arc<str>) {
    tracing::warn!(
        target: "onlyonce",
        route,
        here,
        there = %there,
        "the process that started before on this store has another scope for this route: a key that \
         ran there is new here, and runs again; give every process of a service the same `scope`, \
         and other services a `namespace` of their own (docs/stores.md)"
    );
}
