//! Secure servers: verified with a trusted certificate, refused with any other.

use std::process::Stdio;
use std::sync::Arc;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use crate::support::foreign::{self, Flaw};

/// A way in over TLS to a plain server; gives its URL and its certificate.
async fn secured(plain: &str) -> (String, String) {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![cert.der().clone()],
            PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap(),
        )
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let upstream = plain.split('/').nth(2).unwrap().to_owned();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, upstream) = (acceptor.clone(), upstream.clone());
            tokio::spawn(async move {
                let mut client = acceptor.accept(stream).await.ok()?;
                let mut server = tokio::net::TcpStream::connect(upstream).await.ok()?;
                tokio::io::copy_bidirectional(&mut client, &mut server)
                    .await
                    .ok()
            });
        }
    });
    (format!("https://localhost:{port}/orders"), cert.pem())
}

#[tokio::test]
async fn a_trusted_server_is_verified_and_any_other_is_refused() {
    let (url, certificate) = secured(&foreign::start(Flaw::None).await).await;
    let trusted = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(trusted.path(), certificate).unwrap();
    let verify = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
        command
            .args(["verify", &url, "--slow-path=/slow", "--skip=date"])
            .stdin(Stdio::null());
        command
    };

    let good = verify()
        .env("SSL_CERT_FILE", trusted.path())
        .output()
        .await
        .unwrap();
    let bad = verify().env_remove("SSL_CERT_FILE").output().await.unwrap();

    let told = String::from_utf8_lossy(&good.stdout);
    assert_eq!(good.status.code(), Some(0), "{told}");
    assert!(told.contains("0 failed"), "{told}");
    let told = String::from_utf8_lossy(&bad.stderr);
    assert_eq!(bad.status.code(), Some(2), "{told}");
    assert!(told.contains("SSL_CERT_FILE"), "{told}");
}

#[tokio::test]
async fn a_plain_server_under_https_and_a_secure_one_under_http_say_so() {
    let plain = foreign::start(Flaw::None).await;
    let (secure, _) = secured(&plain).await;

    for (url, hint) in [
        (plain.replace("http:", "https:"), "use http://"),
        (secure.replace("https:", "http:"), "rather than https"),
    ] {
        let unusable = crate::support::try_verify(&url, &[]).await.unwrap_err();

        assert!(unusable.hint.contains(hint), "{unusable}");
    }
}

#[tokio::test]
async fn a_server_that_does_not_speak_http_says_so() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 64]).await;
            let _ = stream.write_all(b"220 mail.example.org ESMTP\r\n").await;
        }
    });

    let unusable = crate::support::try_verify(&url, &[]).await.unwrap_err();

    assert!(unusable.hint.contains("HTTP/1.1"), "{unusable}");
}
