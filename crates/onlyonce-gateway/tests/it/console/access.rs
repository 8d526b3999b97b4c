//! Who is let in: with a token only who gave it, from other pages nobody, and no form anywhere but here.

use std::path::Path;

use onlyonce_gateway::Gateway;
use reqwest::RequestBuilder;

use super::{Got, PAGES, TOKEN, attempts, form, in_doubt, open, read, send, slots, still, url};
use crate::support::{Service, gateway, order_with};

const KEY: &str = "a-key-that-is-long-enough";

fn asks_for_token(folder: &Path) -> String {
    let file = folder.join("token");
    std::fs::write(&file, format!("{TOKEN}\n")).unwrap();
    format!("admin_token_file = {:?}\n", file.display().to_string())
}

async fn guarded() -> (Gateway, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start().await;
    let gateway = gateway(service.address, &asks_for_token(folder.path())).await;
    (gateway, folder)
}

async fn log_in(gateway: &Gateway, token: &str) -> Got {
    send(gateway, "/login", &[("token", token), ("next", "/records")]).await
}

/// What a browser sends back of a cookie that it was given.
fn kept(got: &Got) -> String {
    let cookie = got.header("set-cookie");
    cookie.split(';').next().unwrap().to_owned()
}

async fn with_cookie(request: RequestBuilder, cookie: &str) -> Got {
    read(request.header("cookie", cookie)).await
}

#[tokio::test]
async fn without_a_session_every_page_leads_to_the_form_and_back() {
    let (gateway, _folder) = guarded().await;

    for path in PAGES {
        let page = open(&gateway, path).await;
        assert_eq!(page.status, 303, "{path}");
        assert!(page.header("location").starts_with("/login"), "{path}");
        assert_eq!(page.text, "");
    }
    let asked = open(&gateway, "/records?state=done").await;
    assert_eq!(
        asked.header("location"),
        "/login?next=%2Frecords%3Fstate%3Ddone"
    );
    let login = open(&gateway, asked.header("location")).await;
    assert_eq!(login.status, 200);
    login.has("name=\"next\" value=\"/records?state=done\"");
    login.has("type=\"password\"");
    login.has_not(TOKEN);
    for path in ["/in-doubt/settle", "/in-doubt/preview", "/records/find"] {
        let sent = send(&gateway, path, &[("slot", "0"), ("key", KEY)]).await;
        assert_eq!((sent.status, sent.header("location")), (303, "/login"));
    }
}

#[tokio::test]
async fn the_token_opens_a_session_whose_cookie_is_not_the_token() {
    let (gateway, _folder) = guarded().await;

    let entered = log_in(&gateway, TOKEN).await;
    let cookie = kept(&entered);

    assert_eq!(
        (entered.status, entered.header("location")),
        (303, "/records")
    );
    let set = entered.header("set-cookie");
    assert!(
        set.ends_with("; Path=/; HttpOnly; SameSite=Strict"),
        "{set}"
    );
    assert!(!set.contains(TOKEN));
    assert_ne!(
        kept(&log_in(&gateway, TOKEN).await),
        cookie,
        "each has its own"
    );
    for path in PAGES {
        let page = with_cookie(still().get(url(&gateway, path)), &cookie).await;
        assert_eq!(page.status, 200, "{path}");
        page.has("Log out");
        page.has_not(TOKEN);
    }
    let now = with_cookie(still().get(url(&gateway, "/api/v1/now")), &cookie).await;
    assert_eq!(now.status, 200, "the page reads the API");

    let left = with_cookie(form(&gateway, "/logout", &[]), &cookie).await;
    assert!(left.header("set-cookie").contains("Max-Age=0"));
    for path in ["/", "/api/v1/now"] {
        let page = with_cookie(still().get(url(&gateway, path)), &cookie).await;
        assert_ne!(page.status, 200, "{path}");
    }
}

#[tokio::test]
async fn a_session_reads_the_api_and_changes_nothing_there() {
    let (gateway, _folder) = guarded().await;
    let cookie = kept(&log_in(&gateway, TOKEN).await);

    let own = url(&gateway, "");
    let sweep = || still().post(url(&gateway, "/api/v1/sweep"));
    let swept = with_cookie(sweep().header("origin", own), &cookie).await;
    let by_token = read(sweep().header("authorization", format!("Bearer {TOKEN}"))).await;

    assert_eq!(swept.status, 401);
    assert_eq!(by_token.status, 200);
    let page = still().get(url(&gateway, "/health"));
    let page = read(page.header("authorization", format!("Bearer {TOKEN}"))).await;
    assert_eq!(page.status, 200, "the token itself opens pages too");
}

#[tokio::test]
async fn a_wrong_token_is_told_and_too_many_are_refused_even_if_the_last_is_right() {
    let (gateway, _folder) = guarded().await;

    let wrong = log_in(&gateway, "a-token-somebody-guesses").await;
    assert_eq!(wrong.status, 401);
    wrong.has("This is not the admin token of this gateway.");
    wrong.has_not("a-token-somebody-guesses");
    assert_eq!(wrong.header("set-cookie"), "");
    let mut last = log_in(&gateway, "").await;
    for _ in 0..60 {
        last = log_in(&gateway, "a-token-somebody-guesses").await;
        if last.status == 429 {
            break;
        }
    }

    assert_eq!(last.status, 429);
    assert!(!last.header("retry-after").is_empty());
    let right = log_in(&gateway, TOKEN).await;
    assert_eq!(right.status, 429);
    right.has("Too many tokens were tried");
}

#[tokio::test]
async fn the_token_is_guessed_over_the_api_and_by_pages_no_faster_than_in_the_form() {
    let (gateway, _folder) = guarded().await;
    let cookie = kept(&log_in(&gateway, TOKEN).await);
    let with_token = async |path: &str, token: &str| {
        let request = still().get(url(&gateway, path));
        read(request.header("authorization", format!("Bearer {token}"))).await
    };
    for _ in 0..30 {
        let outdated = with_token("/metrics", "the-token-of-last-week").await;
        assert_eq!(outdated.status, 401, "the same again is no other guess");
    }
    assert_eq!(with_token("/api/v1/now", TOKEN).await.status, 200);

    let mut looked_at = 0;
    for number in 0..30 {
        let guess = format!("a-guess-with-number-{number}");
        let path = ["/api/v1/now", "/health", "/login", "/metrics"][number % 4];
        let guessed = with_token(path, &guess).await;
        assert!(matches!(guessed.status, 200 | 303 | 401 | 429), "{path}");
        looked_at += usize::from(guessed.status == 401);
    }

    assert!(looked_at < 10, "{looked_at}");
    let right = with_token("/api/v1/now", TOKEN).await;
    assert_eq!((right.status, right.header("retry-after")), (429, "60"));
    right.has("too many wrong admin tokens");
    let page = with_token("/health", TOKEN).await;
    assert_eq!(
        (page.status, page.header("location")),
        (303, "/login?next=%2Fhealth")
    );
    assert_eq!(with_token("/login", TOKEN).await.status, 200, "the form");
    assert_eq!(log_in(&gateway, TOKEN).await.status, 429);
    let now = with_cookie(still().get(url(&gateway, "/api/v1/now")), &cookie).await;
    assert_eq!(now.status, 200, "who is in stays in");
    assert_eq!(open(&gateway, "/readyz").await.status, 200);
}

#[tokio::test]
async fn a_form_of_another_page_is_refused_and_changes_nothing() {
    let gateway = in_doubt(1, "").await;
    let slot = slots(&gateway).await.remove(0);
    let attempt = attempts(&gateway).await.remove(0);
    let fields = [
        ("attempt", attempt.as_str()),
        ("outcome", "forget"),
        ("reason", "because"),
    ];
    let kind = ("content-type", "application/x-www-form-urlencoded");
    let own = url(&gateway, "");
    let forget = format!("/records/{slot}/forget");
    let marks: [&[(&str, &str)]; 7] = [
        &[("origin", "http://evil.example")],
        &[("origin", "null")],
        &[("origin", "http://localhost:3000")],
        &[("sec-fetch-site", "cross-site")],
        &[("origin", &own), ("sec-fetch-site", "same-site")],
        &[("sec-fetch-site", "none")],
        &[],
    ];

    for path in [
        "/in-doubt/settle",
        "/in-doubt/preview",
        &forget,
        "/records/find",
        "/login",
        "/logout",
    ] {
        for mark in marks {
            let mut body = form_urlencoded::Serializer::new(String::new());
            body.extend_pairs(fields);
            let mut request = still().post(url(&gateway, path)).header(kind.0, kind.1);
            for (name, value) in mark {
                request = request.header(*name, *value);
            }
            let got = read(request.body(body.finish())).await;
            assert_eq!(got.status, 403, "{path} {mark:?}: {}", got.text);
        }
        let rebound = form(&gateway, path, &fields).header("host", "rebound.example");
        assert_eq!(read(rebound).await.status, 421, "{path}");
    }
    assert_eq!(slots(&gateway).await, std::slice::from_ref(&slot));
    let rebound = still()
        .get(url(&gateway, "/"))
        .header("host", "rebound.example");
    assert_eq!(read(rebound).await.status, 421);
}

#[tokio::test]
async fn the_api_takes_no_form_and_the_console_nothing_else() {
    let gateway = in_doubt(1, "").await;
    let fields = [("outcome", "forget"), ("reason", "because")];

    for path in ["/api/v1/records/settle", "/api/v1/sweep", "/nothing"] {
        let got = send(&gateway, path, &fields).await;
        assert_eq!(got.status, 415, "{path}");
    }
    for kind in [
        "application/json",
        "text/plain",
        "multipart/form-data; boundary=x",
    ] {
        let request = still().post(url(&gateway, "/in-doubt/settle"));
        let request = request.header("origin", url(&gateway, ""));
        let got = read(request.header("content-type", kind).body("{}")).await;
        assert_eq!(got.status, 415, "{kind}");
    }
    assert_eq!(slots(&gateway).await.len(), 1);
}

#[tokio::test]
async fn without_a_token_nobody_is_asked_for_one() {
    let service = Service::start().await;
    let gateway = gateway(service.address, "").await;
    order_with(&gateway, KEY, "{}").await;

    let login = open(&gateway, "/login?next=/health").await;
    let sent = send(&gateway, "/login", &[("token", "anything")]).await;

    assert_eq!((login.status, login.header("location")), (303, "/health"));
    assert_eq!((sent.status, sent.header("set-cookie")), (303, ""));
}

#[tokio::test]
async fn every_answer_even_a_refusal_is_framed_sniffed_embedded_and_kept_by_nobody() {
    let (gateway, _folder) = guarded().await;
    let by_token = |path: &str| {
        let request = still().get(url(&gateway, path));
        request.header("authorization", format!("Bearer {TOKEN}"))
    };
    let asked = [
        (by_token("/api/v1/records"), 200),
        (by_token("/api/v1/now"), 200),
        (by_token("/api/v1/audit"), 404),
        (by_token("/metrics"), 200),
        (by_token("/records"), 200),
        (by_token("/nothing"), 404),
        (still().get(url(&gateway, "/api/v1/records")), 401),
        (still().get(url(&gateway, "/api/v1/openapi.json")), 200),
        (still().get(url(&gateway, "/healthz")), 200),
        (still().get(url(&gateway, "/readyz")), 200),
        (still().post(url(&gateway, "/logout")), 415),
        (still().post(url(&gateway, "/api/v1/sweep")).body("x"), 415),
        (
            still()
                .post(url(&gateway, "/api/v1/sweep"))
                .header("origin", "http://evil.example"),
            403,
        ),
        (still().delete(url(&gateway, "/api/v1/records")), 405),
    ];

    for (request, status) in asked {
        let got = read(request).await;

        assert_eq!(got.status, status, "{}", got.text);
        let policy = got.header("content-security-policy");
        assert!(
            policy.starts_with("default-src 'none';"),
            "{status}: {policy}"
        );
        assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("x-frame-options", "DENY"),
            ("referrer-policy", "same-origin"),
            ("cross-origin-resource-policy", "same-origin"),
            ("cache-control", "no-store"),
        ] {
            assert_eq!(got.header(name), value, "{name} of {status}: {}", got.text);
        }
    }
}
