//! Secure connections to servers that the machine trusts.

use std::io;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;

pub(crate) struct Tls(TlsConnector);

impl Tls {
    pub(crate) fn new() -> Self {
        let mut config = onlyonce_gateway::trust::client_config();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Self(TlsConnector::from(Arc::new(config)))
    }

    pub(crate) async fn connect(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        self.0.connect(name, stream).await
    }
}
