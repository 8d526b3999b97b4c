use http::HeaderValue;

use super::*;

/// The headers of a browser that keeps `cookie`.
fn browser(cookie: &str) -> HeaderMap {
    let kept = cookie.split(';').next().unwrap();
    let mut headers = HeaderMap::new();
    headers.insert(COOKIE, HeaderValue::from_str(kept).unwrap());
    headers
}

async fn pass(time: Duration) {
    tokio::time::advance(time).await;
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_not_used_ends_and_one_that_is_used_ends_later() {
    let sessions = Sessions::new(9090);
    let (left, used) = (
        browser(&sessions.open(false)),
        browser(&sessions.open(false)),
    );

    pass(IDLE_MAX / 2).await;
    assert!(sessions.is_live(&used));
    pass(IDLE_MAX / 2).await;
    assert!(!sessions.is_live(&left));
    assert!(sessions.is_live(&used));
    for _ in 0..24 {
        pass(IDLE_MAX - Duration::from_secs(1)).await;
        sessions.is_live(&used);
    }
    assert!(!sessions.is_live(&used), "it ends however it is used");
}

#[tokio::test(start_paused = true)]
async fn beyond_the_bound_the_session_that_was_used_longest_ago_ends() {
    let sessions = Sessions::new(9090);
    let first = browser(&sessions.open(false));
    pass(Duration::from_secs(1)).await;
    let second = browser(&sessions.open(false));
    pass(Duration::from_secs(1)).await;
    assert!(sessions.is_live(&first));

    for _ in 0..SESSIONS_MAX - 1 {
        sessions.open(false);
    }

    assert!(sessions.is_live(&first));
    assert!(!sessions.is_live(&second));
    assert_eq!(sessions.live().len(), SESSIONS_MAX);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_was_closed_and_one_that_was_never_opened_are_none() {
    let sessions = Sessions::new(9090);
    let cookie = sessions.open(true);
    let headers = browser(&cookie);
    assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict; Secure"));

    let forget = sessions.close(&headers);

    assert!(forget.contains("Max-Age=0"));
    assert!(!sessions.is_live(&headers));
    for made_up in ["onlyonce_session_9090=", "onlyonce_session_9090=ff", "a=b"] {
        assert!(!sessions.is_live(&browser(made_up)), "{made_up}");
    }
    let other_port = Sessions::new(9091);
    let of_other = browser(&other_port.open(false));
    assert!(!sessions.is_live(&of_other));
}
