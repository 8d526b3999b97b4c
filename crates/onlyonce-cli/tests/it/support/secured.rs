//! A way in over TLS to a plain server, with a certificate that nobody trusts unless told to.

use std::sync::Arc;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use tempfile::NamedTempFile;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

pub(crate) struct Secured {
    /// Without a path.
    pub(crate) url: String,
    certificate: NamedTempFile,
}

impl Secured {
    /// In front of the server at this URL.
    pub(crate) async fn start(plain: &str) -> Self {
        Self::start_offering(plain, &[]).await
    }

    /// The same, and offers to speak these protocols.
    pub(crate) async fn start_offering(plain: &str, protocols: &[&str]) -> Self {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![cert.der().clone()],
                PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap(),
            )
            .unwrap();
        config.alpn_protocols = protocols.iter().map(|it| it.as_bytes().to_vec()).collect();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = plain.split('/').nth(2).unwrap().to_owned();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, server) = (acceptor.clone(), server.clone());
                tokio::spawn(async move {
                    let mut client = acceptor.accept(stream).await.ok()?;
                    let mut server = TcpStream::connect(server).await.ok()?;
                    tokio::io::copy_bidirectional(&mut client, &mut server)
                        .await
                        .ok()
                });
            }
        });
        let certificate = NamedTempFile::new().unwrap();
        std::fs::write(certificate.path(), cert.pem()).unwrap();
        Self {
            url: format!("https://localhost:{port}"),
            certificate,
        }
    }

    /// The variable with which a process trusts it.
    pub(crate) fn trusted(&self) -> (&'static str, String) {
        let path = self.certificate.path().display().to_string();
        ("SSL_CERT_FILE", path)
    }
}
