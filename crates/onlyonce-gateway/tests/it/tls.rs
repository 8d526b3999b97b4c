//! TLS from files: served, reloaded, and kept where new ones cannot be used.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use onlyonce_gateway::Gateway;
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::support::{Service, checked, gateway, settings};

/// A certificate for localhost and its key, as PEM.
struct Pair {
    cert: String,
    key: String,
}

impl Pair {
    fn until(year: i32) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.not_after = date_time_ymd(year, 1, 1);
        let cert = params.self_signed(&key).unwrap();
        Self {
            cert: cert.pem(),
            key: key.serialize_pem(),
        }
    }
}

/// Where the gateway reads its certificate.
struct Files {
    folder: tempfile::TempDir,
}

impl Files {
    fn new(pair: &Pair) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let files = Self { folder };
        files.write(&pair.cert, &pair.key);
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, cert: &str, key: &str) {
        std::fs::write(self.path("cert.pem"), cert).unwrap();
        std::fs::write(self.path("key.pem"), key).unwrap();
    }

    fn settings(&self) -> String {
        let text = |path: &Path| format!("{:?}", path.display().to_string());
        let (cert, key) = (self.path("cert.pem"), self.path("key.pem"));
        format!("[tls]\ncert = {}\nkey = {}", text(&cert), text(&key))
    }
}

/// Orders over TLS, trusting only this certificate.
async fn order(gateway: &Gateway, trusted: &Pair) -> Result<String, std::io::Error> {
    let mut roots = RootCertStore::empty();
    let cert = CertificateDer::from_pem_slice(trusted.cert.as_bytes()).unwrap();
    roots.add(cert).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(gateway.address()).await?;
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await?;
    let request = "POST /told HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\
                   connection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await?;
    let mut heard = String::new();
    stream.read_to_string(&mut heard).await?;
    Ok(heard)
}

#[tokio::test]
async fn a_reload_serves_the_new_certificate() {
    let service = Service::start().await;
    let (old, new) = (Pair::until(2100), Pair::until(2101));
    let files = Files::new(&old);
    let gateway = gateway(service.address, &files.settings()).await;
    let heard = order(&gateway, &old).await.unwrap();
    assert!(heard.contains("x-forwarded-proto: https"), "{heard}");
    assert!(order(&gateway, &new).await.is_err());

    files.write(&new.cert, &new.key);
    gateway
        .reload(&settings(service.address, &files.settings()))
        .unwrap();

    assert!(order(&gateway, &new).await.unwrap().contains(" 200 "));
    assert!(order(&gateway, &old).await.is_err());
}

#[tokio::test]
async fn a_certificate_that_cannot_be_used_keeps_the_old_one_and_says_why() {
    let service = Service::start().await;
    let (old, other, expired) = (Pair::until(2100), Pair::until(2100), Pair::until(2001));
    let files = Files::new(&old);
    let gateway = gateway(service.address, &files.settings()).await;

    for (cert, key, why) in [
        (&*expired.cert, &*expired.key, "expired on"),
        (&*other.cert, &*old.key, "certificate of the private key"),
        ("no certificate", &*old.key, "cert.pem"),
        (&*other.cert, "no key", "key.pem"),
    ] {
        files.write(cert, key);
        let error = checked(service.address, &files.settings())
            .unwrap_err()
            .to_string();
        assert!(error.contains(why), "{error}");
        assert!(order(&gateway, &old).await.unwrap().contains(" 200 "));
    }
}
