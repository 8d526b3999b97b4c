//! Row "scope": whose record it is.

use http::HeaderName;
use onlyonce_core::Profile;
use onlyonce_tower::ScopePart;

use super::{CONTRACTS, Contract};
use crate::support::{App, PATH, post, uuid};

#[tokio::test]
async fn no_profile_lets_two_callers_share_a_record() {
    for contract in &CONTRACTS {
        let app = App::under(contract.profile).open().await;
        let request = post(PATH).key(uuid(1));

        let callers = [
            request.clone(),
            request.clone().bearer("alice"),
            request.clone().bearer("bob"),
            request
                .clone()
                .header("authorization", "Basic Ym9iOmJvYg=="),
            request.clone().principal("alice"),
            request.principal("bob"),
        ];
        for caller in &callers {
            app.send(caller).await;
        }

        assert_eq!(app.runs(), callers.len(), "{}", contract.profile);
        for (index, caller) in (1..).zip(&callers) {
            assert_eq!(app.send(caller).await.run(), index, "{}", contract.profile);
        }
    }
}

#[tokio::test]
async fn two_intakes_are_two_records_where_the_route_or_the_intake_is_in_scope() {
    let apart = |contract: &&Contract| contract.route_in_scope || contract.intake_in_scope;
    for contract in CONTRACTS.iter().filter(apart) {
        let app = App::under(contract.profile).open().await;
        let one = post("/api/intakes/1/submit").key(uuid(1));
        let two = post("/api/intakes/2/submit").key(uuid(1));

        let answers = [
            app.send(&one).await.run(),
            app.send(&two).await.run(),
            app.send(&one).await.run(),
            app.send(&two).await.run(),
        ];

        assert_eq!(answers, [1, 2, 1, 2], "{}", contract.profile);
    }
}

/// `{intakeId}:{key}`: the operation is no part of the address.
#[tokio::test]
async fn one_key_for_two_operations_of_an_intake_conflicts() {
    for contract in CONTRACTS.iter().filter(|it| it.intake_in_scope) {
        let app = App::under(contract.profile).open().await;
        let create = post("/api/intakes/vendors/submissions").key(uuid(1));
        let submit = create.clone().to("/api/intakes/vendors/submit");
        app.send(&create).await;

        let answer = app.send(&submit).await;

        contract.assert_refused(&answer, contract.other_operation);
        assert_eq!(app.runs(), 1, "{}", contract.profile);
        let other_caller = app.send(&submit.clone().bearer("alice")).await;
        assert_eq!(other_caller.run(), 2, "{}", contract.profile);
        let below_a_prefix = app.send(&create.to("/v2/api/intakes/staff")).await;
        assert_eq!(below_a_prefix.run(), 3, "{}", contract.profile);
    }
}

#[tokio::test]
async fn an_intake_of_a_configured_route_is_its_own_scope() {
    for profile in [Profile::Formbridge, Profile::Formbridge008] {
        let app = App::under(profile)
            .route("/api/intakes/{intake}/submit")
            .scope([ScopePart::Path("intake".into()), ScopePart::Caller])
            .open()
            .await;
        let request = post("/api/intakes/vendors/submit").key(uuid(1));
        let other_intake = request.clone().to("/api/intakes/staff/submit");
        let other_user = request.clone().bearer("alice");

        let answers = [
            app.send(&request).await.run(),
            app.send(&other_intake).await.run(),
            app.send(&other_user).await.run(),
            app.send(&request).await.run(),
            app.send(&other_intake).await.run(),
            app.send(&other_user).await.run(),
        ];

        assert_eq!(answers, [1, 2, 3, 1, 2, 3], "{profile}");
    }
}

#[tokio::test]
async fn a_form_and_a_session_of_it_are_a_scope_for_the_broker() {
    let app = App::under(Profile::Broker).open().await;
    let session = |form: &str, context: &str| {
        post(&format!("/api/forms/{form}/submit"))
            .key("my-custom-key-12345")
            .json(&format!(r#"{{"contextId":"{context}","formData":{{}}}}"#))
    };
    let requests = [
        session("lead", "lead:1"),
        session("lead", "lead:2"),
        session("case", "lead:1"),
        post("/api/forms/lead/submit").key("my-custom-key-12345"),
    ];

    for request in &requests {
        app.send(request).await;
    }

    assert_eq!(app.runs(), requests.len());
    for (index, request) in (1..).zip(&requests) {
        assert_eq!(app.send(request).await.run(), index);
    }
}

#[tokio::test]
async fn a_configured_scope_replaces_the_profile_s() {
    let tenant = ScopePart::Header {
        name: HeaderName::from_static("x-tenant"),
        trusted: true,
    };
    let app = App::under(Profile::Middleware).scope([tenant]).open().await;
    let request = post(PATH).key(uuid(1));

    let first = app.send(&request.clone().header("x-tenant", "acme")).await;
    let same = request.clone().header("x-tenant", "acme").bearer("alice");
    let other = request.header("x-tenant", "globex").bearer("alice");

    assert_eq!(first.run(), 1);
    assert_eq!(app.send(&same).await.run(), 1);
    assert_eq!(app.send(&other).await.run(), 2);
}
