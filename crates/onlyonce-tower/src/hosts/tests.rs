//! Who is let in, as a table.

use super::*;

fn asking(method: &str, headers: &[(&str, &str)]) -> Request<()> {
    let mut request = Request::builder().method(method).uri("/sweep");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap()
}

fn on(bound: &str) -> KnownHosts {
    KnownHosts::of(bound.parse().unwrap())
}

#[test]
fn a_service_on_loopback_is_known_by_loopback_names_and_addresses() {
    for host in [
        "localhost",
        "LOCALHOST:9090",
        "localhost.",
        "127.0.0.1:9090",
        "127.9.9.9",
        "[::1]:9090",
        "[::ffff:127.0.0.1]",
    ] {
        let request = asking("GET", &[("host", host)]);
        assert_eq!(on("127.0.0.1:9090").admit(&request), Ok(()), "{host}");
    }
}

#[test]
fn a_service_is_not_known_by_a_name_that_somebody_else_can_point_at_it() {
    for host in [
        "rebound.example",
        "rebound.example:9090",
        "localhost.rebound.example",
        "127.0.0.1.rebound.example",
        "0.0.0.0:9090",
        "10.0.0.1",
        "2130706433",
        "user@localhost",
        "localhost@rebound.example",
        "",
        "::1",
        "localhost, localhost",
    ] {
        let request = asking("GET", &[("host", host)]);
        let told = on("127.0.0.1:9090").admit(&request);
        assert!(matches!(told, Err(Foreign::Host { .. })), "{host}");
    }
    let none = on("127.0.0.1:9090").admit(&asking("GET", &[]));
    assert!(matches!(none, Err(Foreign::Host { .. })));
}

#[test]
fn one_host_of_several_that_is_not_known_is_enough_to_be_refused() {
    let two = asking("GET", &[("host", "localhost"), ("host", "rebound.example")]);
    let target = Request::get("http://rebound.example/").header("host", "localhost");
    let target = target.body(()).unwrap();

    for request in [two, target] {
        assert!(on("127.0.0.1:9090").admit(&request).is_err());
    }
}

#[test]
fn a_service_is_known_by_its_own_address_and_by_the_names_it_was_given() {
    let hosts = on("10.1.2.3:9090").and(["Admin.Example"]);
    for (host, is_known) in [
        ("10.1.2.3:9090", true),
        ("admin.example:443", true),
        ("10.1.2.4", false),
        ("other.example", false),
    ] {
        let request = asking("GET", &[("host", host)]);
        assert_eq!(hosts.admit(&request).is_ok(), is_known, "{host}");
    }
    let everywhere = on("0.0.0.0:9090");
    assert!(
        everywhere
            .admit(&asking("GET", &[("host", "10.1.2.4")]))
            .is_ok()
    );
    assert!(
        everywhere
            .admit(&asking("GET", &[("host", "a.example")]))
            .is_err()
    );
}

#[test]
fn a_page_of_another_origin_changes_nothing() {
    let foreign: [&[(&str, &str)]; 8] = [
        &[("origin", "http://evil.example")],
        &[("origin", "null")],
        &[("origin", "http://localhost:3000")],
        &[("origin", "https://localhost:9090.evil.example")],
        &[
            ("origin", "http://localhost:9090"),
            ("origin", "http://evil.example"),
        ],
        &[("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site")],
        &[
            ("origin", "http://localhost:9090"),
            ("sec-fetch-site", "cross-site"),
        ],
    ];
    for headers in foreign {
        let headers = [headers, &[("host", "localhost:9090")]].concat();
        for method in ["POST", "DELETE", "PUT", "PATCH"] {
            let told = on("127.0.0.1:9090").admit(&asking(method, &headers));
            assert!(
                matches!(told, Err(Foreign::CrossSite { .. })),
                "{method} {headers:?}"
            );
        }
        let read = on("127.0.0.1:9090").admit(&asking("GET", &headers));
        assert_eq!(read, Ok(()), "a browser does not show it the answer");
    }
}

#[test]
fn a_page_of_the_service_itself_and_what_is_no_browser_may_change_things() {
    let own: [&[(&str, &str)]; 5] = [
        &[],
        &[("origin", "http://localhost:9090")],
        &[
            ("origin", "http://LOCALHOST:9090"),
            ("sec-fetch-site", "same-origin"),
        ],
        &[("origin", "https://localhost:9090")],
        &[("sec-fetch-site", "none")],
    ];
    for headers in own {
        let headers = [headers, &[("host", "localhost:9090")]].concat();
        let told = on("127.0.0.1:9090").admit(&asking("POST", &headers));
        assert_eq!(told, Ok(()), "{headers:?}");
    }
    let behind_tls = [
        ("host", "admin.example"),
        ("origin", "https://admin.example:443"),
    ];
    let hosts = on("127.0.0.1:9090").and(["admin.example"]);
    assert_eq!(hosts.admit(&asking("POST", &behind_tls)), Ok(()));
}
