//! What the store costs its server: round trips, and transaction ids.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use onlyonce_core::Store;
use onlyonce_stores::sql::PostgresStore;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::bed::{Bed, direct_url, with_options};
use super::private::Private;
use super::support::{answer, done, fresh, granted, rival, stored, taken};

/// Passes everything on to the server, and counts how often that was ready for more.
struct Proxy {
    address: String,
    round_trips: Arc<AtomicUsize>,
}

impl Proxy {
    async fn to(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let round_trips = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&round_trips);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&server).await.unwrap();
                tokio::spawn(pass(client, server, Arc::clone(&counted)));
            }
        });
        Self {
            address,
            round_trips,
        }
    }

    fn count(&self) -> usize {
        self.round_trips.load(Ordering::SeqCst)
    }
}

async fn pass(client: TcpStream, server: TcpStream, counted: Arc<AtomicUsize>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
    // Every message of the server is a letter, a length and that many bytes less four.
    loop {
        let mut head = [0; 5];
        if from_server.read_exact(&mut head).await.is_err() {
            return;
        }
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let mut rest = vec![0; length - 4];
        from_server.read_exact(&mut rest).await.unwrap();
        if head[0] == b'Z' {
            counted.fetch_add(1, Ordering::SeqCst);
        }
        to_client.write_all(&head).await.unwrap();
        to_client.write_all(&rest).await.unwrap();
    }
}

#[tokio::test]
async fn a_new_request_takes_two_round_trips_and_a_replay_one() {
    let bed = Bed::direct().await;
    let address = url::Url::parse(&direct_url()).unwrap();
    let server = (address.host_str().unwrap(), address.port().unwrap_or(5432));
    let proxy = Proxy::to(format!("{}:{}", server.0, server.1)).await;
    let through = direct_url().replace(&format!("{}:{}", server.0, server.1), &proxy.address);
    for (pooled, notify) in [("false", "false"), ("true", "false")] {
        let options = format!(
            "table={}&connections=1&sslmode=disable&notify={notify}&pooled={pooled}",
            bed.table
        );
        let store = PostgresStore::open(&with_options(&through, &options))
            .await
            .unwrap();
        let known = done(&store, "prepares").await;
        taken(&store, &rival(&known)).await;

        let before = proxy.count();
        for _ in 0..10 {
            done(&store, "new").await;
        }
        assert_eq!(proxy.count() - before, 20, "pooled: {pooled}");

        let before = proxy.count();
        for _ in 0..10 {
            taken(&store, &rival(&known)).await;
        }
        assert_eq!(proxy.count() - before, 10, "pooled: {pooled}");
    }
}

/// On a server of its own: transaction ids are counted for all databases together.
#[tokio::test]
async fn a_replay_takes_no_transaction_id() {
    let server = Private::start();
    let bed = Bed::open(&server.url(), "").await;
    let store = &bed.store;
    let known = done(store, "known").await;
    let next = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::int8";
    // What is announced, and what the server does for itself, is over.
    let settled = async || {
        let mut last = bed.number(next.to_owned()).await;
        loop {
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
            let now = bed.number(next.to_owned()).await;
            if now == last {
                return now;
            }
            last = now;
        }
    };
    let before = settled().await;

    for _ in 0..100 {
        taken(store, &rival(&known)).await;
    }

    assert_eq!(bed.number(next.to_owned()).await, before);
    let claim = fresh();
    let lease = granted(store, &claim).await;
    let completed = store
        .complete(&lease, &answer("counts"), lease.keep_for)
        .await;
    assert!(completed.is_ok());
    assert!(bed.number(next.to_owned()).await > before);
    stored(store, &granted(store, &fresh()).await, "more").await;
}
