//! The parameters of a path, as the router that matched the request found them.

use std::sync::Arc;

/// The parameters of the route that a router has matched. A router puts them into the request's extensions,
/// for a layer with [`matched_route`](crate::IdempotencyLayer::matched_route) behind it.
///
/// ```
/// use onlyonce_tower::PathParams;
///
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(PathParams::new([("intake", "vendors")]));
/// let params = request.extensions().get::<PathParams>().unwrap();
/// assert_eq!(params.get("intake"), Some("vendors"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathParams {
    params: Arc<[(String, String)]>,
    of_operation: bool,
}

impl PathParams {
    /// Parameters of the request's own path, by name, as they are in the path.
    pub fn new<N: Into<String>, V: Into<String>>(params: impl IntoIterator<Item = (N, V)>) -> Self {
        let params = params.into_iter();
        let params: Vec<_> = params.map(|(name, it)| (name.into(), it.into())).collect();
        let params = if params.is_empty() {
            Arc::default()
        } else {
            params.into()
        };
        Self {
            params,
            of_operation: false,
        }
    }

    /// The same of a status request: the route matches the path of the operation that the request asks about
    /// ([`Idempotent::status_target`](crate::Idempotent::status_target)), and these are its parameters.
    #[must_use]
    pub fn of_operation(mut self) -> Self {
        self.of_operation = true;
        self
    }

    /// The value of a parameter, as it is in the path.
    pub fn get(&self, name: &str) -> Option<&str> {
        let mut params = self.params.iter();
        params.find_map(|(found, value)| (found == name).then_some(value.as_str()))
    }

    /// Whether they are those of an operation whose status is asked for.
    pub(crate) fn are_of_operation(&self) -> bool {
        self.of_operation
    }
}
