//! TLS towards clients, from files that the settings name.

use std::io;
use std::sync::Arc;

use arc_swap::ArcSwap;
use onlyonce_core::{Clock as _, SystemClock};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::config::{ConfigError, Tls};

/// Accepts with the newest certificate.
#[derive(Clone)]
pub(crate) struct Acceptor {
    current: Arc<ArcSwap<ServerConfig>>,
}

impl Acceptor {
    pub(crate) fn new(server: Arc<ServerConfig>) -> Self {
        Self {
            current: Arc::new(ArcSwap::new(server)),
        }
    }

    /// Takes another certificate for connections from now on.
    pub(crate) fn replace(&self, server: Arc<ServerConfig>) {
        self.current.store(server);
    }

    pub(crate) async fn accept<S>(&self, stream: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        TlsAcceptor::from(self.current.load_full())
            .accept(stream)
            .await
    }
}

/// Whether clients would take this certificate today.
fn in_force(leaf: &CertificateDer<'_>) -> Result<(), String> {
    let (_, certificate) = X509Certificate::from_der(leaf)
        .map_err(|error| format!("holds a certificate that cannot be read: {error}"))?;
    let validity = certificate.validity();
    let now = SystemClock::new().wall().as_millis() / 1000;
    let now = i64::try_from(now).unwrap_or(i64::MAX);
    if validity.not_after.timestamp() < now {
        return Err(format!("expired on {}: renew it", validity.not_after));
    }
    Ok(())
}

/// The certificate chain, if clients would take it today.
pub(crate) fn certificates(tls: &Tls) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let wrong = |why: String| ConfigError::new(tls.cert.display(), why);
    let pem =
        std::fs::read(&tls.cert).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    let certs = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| wrong(format!("is not a certificate chain as PEM: {error}")))?;
    let leaf = certs.first().ok_or_else(|| {
        let why = "is not a certificate chain as PEM: it has no -----BEGIN CERTIFICATE-----";
        wrong(why.to_owned())
    })?;
    in_force(leaf).map_err(wrong)?;
    Ok(certs)
}

/// The private key.
pub(crate) fn private_key(tls: &Tls) -> Result<PrivateKeyDer<'static>, ConfigError> {
    let wrong = |why: String| ConfigError::new(tls.key.display(), why);
    let pem = std::fs::read(&tls.key).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    PrivateKeyDer::from_pem_slice(&pem).map_err(|error| {
        let why = format!("is not a private key as PEM (-----BEGIN PRIVATE KEY-----): {error}");
        wrong(why)
    })
}

/// What serves connections by a certificate and its key.
pub(crate) fn server(
    tls: &Tls,
    certs: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, ConfigError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(certs, key))
        .map_err(|error| {
            let key = tls.key.display();
            let why = format!("is not the certificate of the private key {key}: {error}");
            ConfigError::new(tls.cert.display(), why)
        })?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}
