//! Nothing that is shown holds a key, a credential, a cookie's value or a query.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::post;

use crate::support::{report, serve};

type Keys = Arc<Mutex<Vec<String>>>;

/// Gives away everything it was sent, and keeps the keys to look for.
async fn gossip(
    State(keys): State<Keys>,
    headers: HeaderMap,
) -> ([(&'static str, String); 2], String) {
    let sent = headers.get_all("idempotency-key").iter();
    let sent = sent.map(|it| String::from_utf8_lossy(it.as_bytes()).into_owned());
    keys.lock().unwrap().extend(sent);
    let said = format!("{headers:?}");
    let headers = [
        ("x-said", said.replace(['\t', '\r', '\n'], " ")),
        ("set-cookie", "session=cookie-value".into()),
    ];
    (headers, said)
}

#[tokio::test]
async fn a_report_on_a_server_that_echoes_everything_shows_no_secret() {
    let keys = Keys::default();
    let app = Router::new().route("/orders", post(gossip));
    let url = serve(app.with_state(Arc::clone(&keys))).await;

    let report = report(
        &format!("{url}?token=in-the-query"),
        &[
            "--header=Authorization: Bearer alice-token",
            "--header=X-Api-Key: alice-api-key",
            "--header=Cookie: sid=alice-sid; theme=dark",
            "--other-header=Authorization: Bearer bobby-token",
            "--skip=date",
        ],
    )
    .await;

    let shown = serde_json::to_string(&report).unwrap();
    for secret in [
        "alice-token",
        "alice-api-key",
        "alice-sid",
        "bobby-token",
        "cookie-value",
        "in-the-query",
    ] {
        assert!(!shown.contains(secret), "{secret}");
    }
    let keys = keys.lock().unwrap();
    let long_keys = keys.iter().filter(|key| key.len() >= 36);
    assert!(long_keys.clone().count() > 20);
    for key in long_keys {
        // The longest ones are several fresh ones in a row: none of them may show.
        for part in key.as_bytes().chunks(36).filter(|part| part.len() == 36) {
            let part = String::from_utf8_lossy(part).into_owned();
            assert!(!shown.contains(&part), "{part}");
        }
    }
    assert!(shown.contains("****") && !shown.contains("********"));
}
