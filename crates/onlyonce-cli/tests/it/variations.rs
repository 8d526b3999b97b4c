//! Endpoints that are called otherwise: another method, another header for the key, a form, an
//! older server that limits requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::http::{HeaderName, StatusCode};
use axum::routing::{post, put};
use onlyonce_cli::verify::Judgement;
use onlyonce_core::{Engine, MemoryStore, Profile};
use onlyonce_tower::IdempotencyLayer;

use crate::support::{report, serve, told};

/// Answers a number that grows with every execution.
fn counter() -> impl Fn() -> std::future::Ready<String> + Clone + Send + 'static {
    let count = Arc::new(AtomicUsize::new(0));
    move || std::future::ready(count.fetch_add(1, Ordering::Relaxed).to_string())
}

#[tokio::test]
async fn an_endpoint_of_another_method_and_key_header_is_verified() {
    let mut policy = Profile::Standard.policy();
    policy.http.key_header = HeaderName::from_static("x-request-key");
    let engine = Engine::open(MemoryStore::new()).await.unwrap();
    let layer = IdempotencyLayer::new(engine).policy(policy);
    let url = serve(Router::new().route("/orders", put(counter())).layer(layer)).await;

    let args = ["--method=PUT", "--key-header=X-Request-Key", "--skip=date"];
    let report = report(&url, &args).await;

    assert_eq!(report.summary.failed, 0, "{}", told(&report));
    assert!(report.summary.passed >= 20, "{}", report.summary);
    assert_eq!(report.method, "PUT");
}

#[tokio::test]
async fn an_endpoint_that_takes_forms_is_verified() {
    let form = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(form.path(), "amount=1&note=verify").unwrap();
    let engine = Engine::open(MemoryStore::new()).await.unwrap();
    let layer = IdempotencyLayer::new(engine).profile(Profile::Stripe);
    let url = serve(Router::new().route("/orders", post(counter())).layer(layer)).await;

    let body = format!("--body=@{}", form.path().display());
    let form = "--content-type=application/x-www-form-urlencoded";
    let report = report(&url, &[&body, form, "--profile=stripe", "--skip=date"]).await;

    assert_eq!(report.summary.failed, 0, "{}", told(&report));
    for (id, judgement) in [
        ("mismatch", Judgement::Pass),
        ("json-spelling", Judgement::NotApplicable),
    ] {
        let finding = report.finding(id).unwrap();
        assert_eq!(finding.judgement, judgement, "{id}: {}", finding.because);
    }
}

#[tokio::test]
async fn a_server_that_limits_requests_is_not_taken_for_a_broken_one() {
    let limit = Arc::new(AtomicUsize::new(12));
    let limited = axum::middleware::from_fn(move |request, next: axum::middleware::Next| {
        let is_over = limit
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(1)
            })
            .is_err();
        async move {
            if is_over {
                return Err(StatusCode::TOO_MANY_REQUESTS);
            }
            Ok(next.run(request).await)
        }
    });
    let engine = Engine::open(MemoryStore::new()).await.unwrap();
    let app = Router::new()
        .route("/orders", post(counter()))
        .layer(IdempotencyLayer::new(engine))
        .layer(limited);

    let report = report(
        &serve(app).await,
        &["--skip=concurrency,date", "--timeout=1s"],
    )
    .await;

    assert_eq!(report.summary.failed, 0, "{}", told(&report));
    let finding = report.finding("two-keys").unwrap();
    assert_eq!(finding.judgement, Judgement::Inconclusive);
    assert!(
        finding.because.contains("limits requests"),
        "{}",
        finding.because
    );
}
