//! What is wrong with a URL is said with what would be right.

use super::*;

async fn refusal(url: &str) -> String {
    match open(url).await {
        Ok(_) => panic!("{url} was opened"),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn memory_needs_no_more_than_its_name() {
    assert!(open("memory:").await.is_ok());
}

#[tokio::test]
async fn a_scheme_that_is_nearly_right_is_named() {
    let told = refusal("rediss+cluster://h").await;
    assert!(told.contains("did you mean redis+cluster:?"), "{told}");

    let told = refusal("posgres://h").await;
    assert!(told.contains("did you mean postgres:?"), "{told}");
}

#[tokio::test]
async fn an_unknown_scheme_is_told_with_all_that_there_are() {
    let told = refusal("dynamodb://table").await;

    assert!(SCHEMES.iter().all(|scheme| told.contains(scheme)), "{told}");
}

#[tokio::test]
async fn what_is_no_url_is_told_with_an_example() {
    assert!(refusal("./data").await.contains("file:./onlyonce-data"));
}

#[tokio::test]
async fn an_unknown_option_is_an_error() {
    let told = refusal("memory:?size=3").await;

    assert!(
        told.contains("`size`") && told.contains("records_max"),
        "{told}"
    );
}

#[test]
fn an_address_is_shown_without_anything_that_may_be_a_password() {
    for (url, shown) in [
        ("redis://127.0.0.1:1", Some("127.0.0.1:1")),
        ("redis://user:s3cret@host:1/0?prefix=a", Some("host:1")),
        ("mysql://user:s3/c?r#et@host/db", Some("host")),
        ("postgres://user:s3@cret@[::1]:1/db", Some("[::1]:1")),
        ("redis+cluster://:s3cret@a:1,b:2", Some("a:1,b:2")),
        ("postgres://user:s3cret@/db?host=/run", None),
        (
            "postgres://user:s3cret@db:1/shop?tier=redis://:s3cret@quick:2&cache=1MiB",
            Some("db:1"),
        ),
        ("postgres://db/shop?tier=redis://:s3cret@quick", Some("db")),
        ("file:./data", None),
    ] {
        assert_eq!(address(url).as_deref(), shown, "{url}");
        assert!(!super::shown(url).contains("s3"), "{url}");
    }
    assert_eq!(shown("file:./data?sealed=key"), "file:./data");
    assert_eq!(shown("redis://:s3cret@host:1/0"), "redis://host:1");
}

#[cfg(feature = "postgres")]
#[test]
fn the_servers_of_a_postgresql_that_fails_over_are_checked_without_asking_them() {
    let servers = "postgres://user:s3cret@a:5432,b:5433/db?target_session_attrs=";

    assert!(check_url(&format!("{servers}read-write&cache=1MiB")).is_ok());
    let told = check_url(&format!("{servers}any")).unwrap_err().to_string();
    assert!(told.contains("must be read-write"), "{told}");
    assert_eq!(shown(servers), "postgres://a:5432,b:5433");
    assert_eq!(server(servers).unwrap().port, 5432);
}

#[cfg(all(feature = "redis", feature = "postgres", feature = "mysql"))]
#[tokio::test]
async fn a_server_that_is_not_there_is_named_by_its_address_and_not_by_its_password() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = closed.local_addr().unwrap();
    drop(closed);
    for url in [
        format!("redis://user:s3cret@{address}"),
        format!("redis+cluster://user:s3cret@{address}"),
        format!("postgres://user:s3cret@{address}/db"),
        format!("mysql://user:s3cret@{address}/db"),
    ] {
        let error = open(&url).await.err().unwrap();

        let mut told = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(next) = cause {
            told.push_str(&format!(": {next}"));
            cause = next.source();
        }
        assert!(told.contains(&address.to_string()), "{url}: {told}");
        assert!(!told.contains("s3cret"), "{told}");
        assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");
    }
}
