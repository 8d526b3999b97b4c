//! Encrypted connections.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use onlyonce_core::StoreErrorKind;
use onlyonce_redis::{OpenError, RedisStore};

use super::claims::{done, replayed};
use super::private::start;

#[tokio::test]
async fn a_certificate_is_checked_against_the_file_in_the_url() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    make_certificates(folder.path());
    let port = free_port();
    let _server = start(&[
        &format!("tls-port {port}"),
        "tls-auth-clients no",
        &format!("tls-cert-file {}", file("server.pem")),
        &format!("tls-key-file {}", file("server.key")),
        &format!("tls-ca-cert-file {}", file("ca.pem")),
    ]);
    let authority = file("ca.pem");

    let url = format!("rediss://127.0.0.1:{port}");
    let store = RedisStore::open(&format!("{url}?ca={authority}"))
        .await
        .unwrap();
    let claim = done(&store, "sealed on its way").await;
    assert_eq!(replayed(&store, &claim).await, b"sealed on its way");

    let unknown = RedisStore::open(&url).await.unwrap_err();
    let OpenError::Store(error) = unknown else {
        panic!("not about the connection: {unknown}");
    };
    assert_eq!(error.kind, StoreErrorKind::Unavailable);
    let missing = RedisStore::open(&format!("{url}?ca=/nowhere.pem"))
        .await
        .unwrap_err();
    assert!(missing.to_string().contains("`ca`"), "{missing}");
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// An authority, and a server's certificate by it.
fn make_certificates(folder: &Path) {
    std::fs::write(folder.join("names"), "subjectAltName=IP:127.0.0.1").unwrap();
    for line in [
        "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=test",
        "req -newkey rsa:2048 -nodes -keyout server.key -out server.csr -subj /CN=server",
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -out server.pem -extfile names",
    ] {
        let made = Command::new("openssl")
            .args(line.split(' '))
            .current_dir(folder)
            .stderr(Stdio::null())
            .stdout(Stdio::null())
            .status();
        assert!(made.expect("openssl is installed").success(), "{line}");
    }
    // The server runs as somebody else.
    for (name, mode) in [("", 0o755), ("server.key", 0o644)] {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(folder.join(name), mode).unwrap();
    }
}
