use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use proptest::prelude::*;

use super::*;

const HERE: &str = "https://service.test:8443/orders/1?a=b";

fn followed(location: &[u8]) -> Option<Uri> {
    let mut request = Request::new(());
    *request.uri_mut() = HERE.parse().unwrap();
    let mut headers = HeaderMap::new();
    headers.insert(LOCATION, HeaderValue::from_bytes(location).ok()?);
    let reply = Reply::new(StatusCode::TEMPORARY_REDIRECT, headers, Bytes::new());
    same_request_elsewhere(&request, &reply)
}

#[test]
fn a_redirect_within_the_origin_is_followed() {
    for (location, there) in [
        ("/new", "https://service.test:8443/new"),
        ("2#part", "https://service.test:8443/orders/2"),
        (
            "https://service.test:8443/new",
            "https://service.test:8443/new",
        ),
        ("?c=d", "https://service.test:8443/orders/1?c=d"),
    ] {
        let followed = followed(location.as_bytes());
        assert_eq!(followed.unwrap().to_string(), there, "{location}");
    }
}

#[test]
fn a_redirect_out_of_the_origin_is_not_followed_however_it_is_written() {
    for location in [
        "http://service.test:8443/new",
        "https://service.test/new",
        "https://service.test:8443@evil.test/",
        "https://user@service.test:8443/new",
        "//evil.test/new",
        "/\\evil.test/new",
        "\\\\evil.test/new",
        "https:\\\\evil.test",
        "/\t/evil.test",
        "https://service.test.evil.test:8443/",
        "javascript:alert(1)",
        "data:text/html,x",
        "ftp://service.test:8443/",
    ] {
        assert_eq!(followed(location.as_bytes()), None, "{location}");
    }
}

proptest! {
    /// As the transport will read it.
    #[test]
    fn no_redirect_leaves_the_origin(
        location in "(https?:)?[/\\\\]{0,3}(service\\.test)?[:@/\\\\.?#a-z0-9%\\[\\]\t]{0,12}"
    ) {
        if let Some(there) = followed(location.as_bytes()) {
            let there = Url::parse(&there.to_string()).unwrap();
            prop_assert_eq!(there.origin(), Url::parse(HERE).unwrap().origin());
            prop_assert!(there.username().is_empty() && there.password().is_none());
        }
    }
}
