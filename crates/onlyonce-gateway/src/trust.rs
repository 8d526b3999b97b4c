//! Whom outgoing connections trust: whom the machine trusts, or the roots in `SSL_CERT_FILE`.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use hyper_rustls::HttpsConnectorBuilder;
use hyper_rustls::builderstates::WantsProtocols1;
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::crypto::ring::default_provider;
use rustls::{ClientConfig, RootCertStore};

/// Connects over http and https.
pub type HttpsConnector = hyper_rustls::HttpsConnector<HttpConnector>;

/// Says which roots to trust, and no others.
const ROOTS_FILE: &str = "SSL_CERT_FILE";

/// Read once: a machine has a hundred and more.
static ROOTS: LazyLock<Arc<RootCertStore>> = LazyLock::new(|| {
    let mut roots = RootCertStore::empty();
    let named = std::env::var_os(ROOTS_FILE);
    if let Some(path) = named.as_ref().filter(|path| !Path::new(path).exists()) {
        tracing::warn!(target: "onlyonce", ?path, "{ROOTS_FILE} is not there: nobody is trusted");
        return Arc::new(roots);
    }
    // A root that cannot be read trusts nobody; the handshake will say so.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() && named.is_none() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    Arc::new(roots)
});

/// TLS towards servers that the machine trusts. On one without roots of its own, those that
/// browsers trust.
pub fn client_config() -> ClientConfig {
    ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has the default versions")
        .with_root_certificates(Arc::clone(&ROOTS))
        .with_no_client_auth()
}

/// Connects over http, and over https to servers that the machine trusts, with HTTP/2 where they
/// have it.
pub fn connector(http: HttpConnector) -> HttpsConnector {
    builder()
        .enable_http1()
        .enable_http2()
        .wrap_connector(to_any(http))
}

/// The same without HTTP/2.
pub fn http1_connector(http: HttpConnector) -> HttpsConnector {
    builder().enable_http1().wrap_connector(to_any(http))
}

fn builder() -> HttpsConnectorBuilder<WantsProtocols1> {
    HttpsConnectorBuilder::new()
        .with_tls_config(client_config())
        .https_or_http()
}

/// Takes https, too, as far as the connection below it goes.
fn to_any(mut http: HttpConnector) -> HttpConnector {
    http.enforce_http(false);
    http
}
