//! A request is matched once: what its route's parameters are is known to the scope, to status requests and to
//! lookups.

use std::sync::atomic::Ordering;

use crate::support::{client, gateway, mirror};

const BY_INTAKE: &str = "rules.status_path = \"/status\"\n\
     [[route]]\nmatch = \"POST /intakes/{intake}/submit\"\nscope = [\"path:intake\"]\n\
     [[route]]\nmatch = \"* /intakes/{*rest}\"\npass = true\n";

fn sent(
    gateway: &onlyonce_gateway::Gateway,
    method: http::Method,
    path: &str,
) -> reqwest::RequestBuilder {
    let url = format!("http://{}{path}", gateway.address());
    client().request(method, url).header("idempotency-key", "k")
}

#[tokio::test]
async fn the_parameters_of_the_route_tell_records_apart() {
    let (service, runs) = mirror().await;
    let gateway = gateway(service, BY_INTAKE).await;
    let post = async |path: &str| {
        let answer = sent(&gateway, http::Method::POST, path).send().await;
        let answer = answer.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };

    let vendors = post("/intakes/vendors/submit").await;
    let access = post("/intakes/access/submit").await;
    let again = post("/intakes/%76endors/submit").await;

    assert_eq!(vendors, (200, "got /intakes/vendors/submit".to_owned()));
    assert_eq!(access, (200, "got /intakes/access/submit".to_owned()));
    assert_eq!(again, vendors);
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_status_request_is_about_the_parameters_of_the_operation() {
    let (service, runs) = mirror().await;
    let gateway = gateway(service, BY_INTAKE).await;
    let submit = sent(&gateway, http::Method::POST, "/intakes/vendors/submit");
    submit.send().await.unwrap();
    let status = async |intake: &str| {
        let path = format!("/status/intakes/{intake}/submit");
        let answer = sent(&gateway, http::Method::GET, &path).send().await;
        answer.unwrap().text().await.unwrap()
    };

    let (known, unknown) = (status("vendors").await, status("access").await);

    assert!(known.contains("\"state\":\"done\""), "{known}");
    assert!(unknown.contains("\"state\":\"unknown\""), "{unknown}");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}
