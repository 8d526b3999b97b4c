//! Requests for the status of a key. One path may have a route for each method, and what is asked for does not
//! say with which of them the key was used: so each of these routes is asked.

use http::{Method, Request, Response};
use onlyonce_core::engine::KeyState;
use onlyonce_tower::{PathParams, ToldState};
use tower_service::Service as _;

use super::{Handling, Once, Site};
use crate::body::{self, ClientBody, GatewayBody};

impl Site {
    /// Who may know the key that a status request asks about, in the order of the routes; empty if it is
    /// no such request.
    pub(super) fn asked_for_status(&self, method: &Method, path: &str) -> Vec<Asked> {
        let of_routes = self.routes.iter().enumerate().filter_map(|(number, it)| {
            let (service, operation) = it.asked(method, path)?;
            let params = self.table.params(number, operation)?.of_operation();
            let knows = !self.table.is_taken_before(number, operation);
            knows.then(|| Asked {
                service: service.clone(),
                params,
            })
        });
        let of_rest = self.rest.iter().filter_map(|rest| {
            let (service, operation) = rest.asked(method, path)?;
            let knows = !self.table.is_taken_before(self.routes.len(), operation);
            knows.then(|| Asked {
                service: service.clone(),
                params: PathParams::default().of_operation(),
            })
        });
        of_routes.chain(of_rest).collect()
    }
}

/// Who may know a key, and the parameters of the operation's path there.
pub(super) struct Asked {
    service: Once,
    params: PathParams,
}

impl Handling {
    /// Who answers a status request here, and the path of the operation that it asks about.
    fn asked<'a>(&'a self, method: &Method, path: &'a str) -> Option<(&'a Once, &'a str)> {
        match self {
            Self::Once(service, _) => Some((service, service.status_target(method, path)?)),
            Self::Pass(_) | Self::Observe(_) | Self::Mcp(_) => None,
        }
    }
}

/// Asks one route after the other until one knows the key. The answer is "unknown" only if every route could
/// tell: otherwise it is the refusal of the first that could not.
pub(super) async fn ask(asked: Vec<Asked>, request: Request<ClientBody>) -> Response<GatewayBody> {
    let (parts, body) = request.into_parts();
    let mut body = Some(body);
    let (mut unknown, mut refused) = (None, None);
    for Asked {
        mut service,
        params,
    } in asked
    {
        let body = body.take().unwrap_or_else(ClientBody::empty);
        let mut request = Request::from_parts(parts.clone(), body);
        request.extensions_mut().insert(params);
        let response = match service.call(request).await {
            Ok(response) => response.map(body::answered),
            Err(failure) => body::upstream_failed(&failure),
        };
        match response.extensions().get::<ToldState>().copied() {
            Some(ToldState(KeyState::Unknown)) => unknown = Some(response),
            Some(ToldState(KeyState::Running | KeyState::Done(_) | KeyState::InDoubt)) => {
                return response;
            }
            None => refused = refused.or(Some(response)),
        }
    }
    refused.or(unknown).unwrap_or_else(body::not_found)
}
