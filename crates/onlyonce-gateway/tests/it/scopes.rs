//! Gateways on one store that tell callers apart differently: nothing else would show it.

use std::io::Write;
use std::sync::{Arc, Mutex};

use onlyonce_gateway::Gateway;
use tracing_subscriber::fmt::MakeWriter;

use crate::support::{Service, client, started};

/// What was logged in this thread.
#[derive(Clone, Default)]
struct Logged(Arc<Mutex<Vec<u8>>>);

impl Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Logged {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Logged {
    /// The warnings about scopes since the last time.
    fn warnings(&self) -> Vec<String> {
        let bytes = std::mem::take(&mut *self.0.lock().unwrap());
        let text = String::from_utf8(bytes).unwrap();
        let about = text.lines().filter(|it| it.contains("another scope"));
        about.map(str::to_owned).collect()
    }
}

/// The same request everywhere: the host is part of every scope.
async fn order(gateway: &Gateway) {
    let request = client().post(format!("http://{}/orders", gateway.address()));
    let request = request
        .header("host", "shop.test")
        .header("idempotency-key", "key");
    assert!(
        request
            .body("{}")
            .send()
            .await
            .unwrap()
            .status()
            .is_success()
    );
}

#[tokio::test]
async fn a_gateway_with_another_scope_on_the_same_store_says_so_at_its_start_and_names_both() {
    let logged = Logged::default();
    let subscriber = tracing_subscriber::fmt().with_writer(logged.clone());
    let subscriber = subscriber.with_ansi(false).finish();
    // With a single subscriber, tracing asks the thread that first meets a line whether anyone listens.
    let _second = tracing::Dispatch::new(
        tracing_subscriber::fmt()
            .with_writer(std::io::sink)
            .finish(),
    );
    let _listening = tracing::subscriber::set_default(subscriber);
    let (service, folder) = (Service::start().await, tempfile::tempdir().unwrap());
    let store = format!(
        "store = \"sqlite:{}\"\n",
        folder.path().join("a.db").display()
    );
    let with = async |rest: &str, orders: &str| {
        let more = format!("{store}{rest}\n[[route]]\nmatch = \"POST /orders\"\n{orders}");
        started(service.address, &more).await
    };

    let first = with("", "").await;
    let same = with("", "").await;
    assert_eq!(logged.warnings(), [""; 0]);
    let other = with("", "scope = [\"route\", \"header:x-tenant\"]").await;
    let told = logged.warnings();

    let [told] = &told[..] else {
        panic!("one route differs: {told:?}");
    };
    assert!(told.contains("POST /orders"), "{told}");
    assert!(told.contains("here=\"route, header:x-tenant\""), "{told}");
    assert!(told.contains("there=caller"), "{told}");
    // It is true: the same key runs again.
    order(&first).await;
    order(&same).await;
    assert_eq!(service.work.runs(), 1);
    order(&other).await;
    assert_eq!(service.work.runs(), 2);
    // A service of its own has nothing to do with it.
    with("namespace = \"another\"", "scope = [\"cookie:a\"]").await;
    assert_eq!(logged.warnings(), [""; 0]);
    // What was changed on purpose is told once.
    with("", "scope = [\"route\", \"header:x-tenant\"]").await;
    assert_eq!(logged.warnings(), [""; 0]);
}
