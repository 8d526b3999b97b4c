//! What a service's own answers are known by.

use http::HeaderName;
use http::header::ACCEPT;
use onlyonce_client::{Cause, Evidence, Keys, Operation, Sent};

use crate::support::{Say, Script, operation};

async fn judged(evidence: Evidence, operation: &Operation, say: Say) -> Result<Sent, Cause> {
    let sender = Script::new([say]).sender().evidence(evidence);
    let sent = sender.attempt(operation, &Keys::default().v4()).await;
    sent.map_err(|failure| failure.cause)
}

fn page(status: u16) -> Say {
    Say::With(status, "content-type", "text/html", "<p>thank you</p>")
}

fn json(status: u16) -> Say {
    Say::With(status, "content-type", "application/json", "{}")
}

#[tokio::test]
async fn a_service_that_answers_with_pages_is_understood_if_it_is_known_to() {
    let a = operation("a");
    let asks = a.clone().header(ACCEPT, "text/html, */*").unwrap();

    let usual = judged(Evidence::default(), &a, page(200)).await;
    let known = judged(Evidence::default().pages(), &a, page(200)).await;
    let rejected = judged(Evidence::default().pages(), &a, page(404)).await;
    let asked = judged(Evidence::default(), &asks, page(200)).await;

    assert_eq!(usual.unwrap_err(), Cause::NotTheService);
    assert!(known.is_ok() && asked.is_ok());
    assert_eq!(rejected.unwrap_err(), Cause::Rejected);
}

#[tokio::test]
async fn json_or_nothing_under_a_page_s_media_type_is_no_page() {
    let php = || {
        Say::With(
            200,
            "content-type",
            "text/html; charset=UTF-8",
            r#"{"id":1}"#,
        )
    };

    let empty = || Say::With(201, "content-type", "text/html; charset=UTF-8", "");
    let a = operation("a");

    assert!(judged(Evidence::default(), &a, php()).await.is_ok());
    assert!(judged(Evidence::default(), &a, empty()).await.is_ok());
}

#[tokio::test]
async fn a_failure_of_the_service_may_be_a_page() {
    for (status, cause) in [
        (500, Cause::Failed),
        (502, Cause::Unavailable),
        (503, Cause::Unavailable),
        (429, Cause::Unavailable),
        (407, Cause::Unauthorised),
    ] {
        let judged = judged(Evidence::default(), &operation("a"), page(status)).await;

        assert_eq!(judged.unwrap_err(), cause);
    }
}

#[tokio::test]
async fn a_service_can_be_known_by_its_media_type() {
    let evidence = || Evidence::default().media_types(["application/json"]);
    let a = operation("a");
    let problem = || Say::With(400, "content-type", "application/problem+json", "{}");
    let text = || Say::With(200, "content-type", "text/plain", "ok");

    assert!(judged(evidence(), &a, json(200)).await.is_ok());
    assert!(judged(evidence(), &a, Say::Status(204)).await.is_ok());
    let rejected = judged(evidence(), &a, problem()).await;
    assert_eq!(rejected.unwrap_err(), Cause::Rejected);
    let foreign = judged(evidence(), &a, text()).await;
    assert_eq!(foreign.unwrap_err(), Cause::NotTheService);
}

#[tokio::test]
async fn a_service_can_be_known_by_a_header_or_by_the_application_s_own_test() {
    let a = operation("a");
    let header = || Evidence::default().header(HeaderName::from_static("x-request-id"));
    let marked = || Say::With(200, "x-request-id", "7", "");
    let own = || Evidence::default().check(|_, reply| reply.body.starts_with(b"{"));

    assert!(judged(header(), &a, marked()).await.is_ok());
    let unmarked = judged(header(), &a, json(200)).await;
    assert_eq!(unmarked.unwrap_err(), Cause::NotTheService);
    assert!(judged(own(), &a, json(200)).await.is_ok());
    let other = judged(own(), &a, Say::Status(404)).await;
    assert_eq!(other.unwrap_err(), Cause::NotTheService);
}

#[tokio::test]
async fn see_other_is_done_only_where_the_service_is_known_to_mean_it() {
    let see = || Say::With(303, "location", "/orders/7", "");
    let a = operation("a");

    let usual = judged(Evidence::default(), &a, see()).await;
    let known = judged(Evidence::default().see_other(), &a, see()).await;
    let found = Say::With(302, "location", "/orders/7", "");
    let found = judged(Evidence::default().see_other(), &a, found).await;

    assert_eq!(usual.unwrap_err(), Cause::NotTheService);
    assert_eq!(known.unwrap().reply.status, 303);
    assert_eq!(found.unwrap_err(), Cause::NotTheService);
}

#[tokio::test]
async fn a_202_is_not_done_until_the_service_keeps_it_as_its_answer() {
    let a = operation("a");
    let kept = || Say::With(202, "idempotent-replayed", "true", "");

    let taken = judged(Evidence::default(), &a, Say::Status(202)).await;
    let kept = judged(Evidence::default(), &a, kept()).await;
    let known = judged(Evidence::default().accepted(), &a, Say::Status(202)).await;

    assert_eq!(taken.unwrap_err(), Cause::InProgress);
    assert!(kept.unwrap().is_replayed);
    assert!(known.is_ok());
}

#[tokio::test]
async fn a_success_of_a_media_type_that_accept_rules_out_is_not_done() {
    let text = || Say::With(200, "content-type", "text/plain; charset=utf-8", "welcome");
    let problem = || Say::With(200, "content-type", "application/hal+json", "{}");
    let a = |accept: &str| operation("a").header(ACCEPT, accept).unwrap();
    let refused = a("application/json;q=0.9, application/xml");

    let unasked = judged(Evidence::default(), &operation("a"), text()).await;
    let ruled_out = judged(Evidence::default(), &refused, text()).await;
    let empty = judged(
        Evidence::default(),
        &refused,
        Say::With(200, "content-type", "text/plain", ""),
    )
    .await;
    let kind = judged(Evidence::default(), &a("application/json, text/*"), text()).await;
    let any = judged(
        Evidence::default(),
        &a("application/json, */*;q=0.1"),
        text(),
    )
    .await;
    let json = judged(Evidence::default(), &refused, problem()).await;
    let rejected = Say::With(422, "content-type", "text/plain", "no");
    let rejected = judged(Evidence::default(), &refused, rejected).await;

    assert_eq!(ruled_out.unwrap_err(), Cause::NotTheService);
    assert!(unasked.is_ok() && empty.is_ok() && kind.is_ok() && any.is_ok() && json.is_ok());
    assert_eq!(rejected.unwrap_err(), Cause::Rejected);
}
