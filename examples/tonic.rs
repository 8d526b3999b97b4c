//! A gRPC service behind the same layer: the key travels as metadata, and a replay keeps its
//! status and trailers.
//!
//! `cargo run -p onlyonce-examples --example tonic`

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use onlyonce::{Engine, IdempotencyLayer, MemoryStore};
use tokio::net::TcpListener;
use tonic::metadata::MetadataValue;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Code, Request, Response, Status};

use generated::payments_client::PaymentsClient;
use generated::payments_server::{Payments, PaymentsServer};

/// What `build.rs` made.
#[allow(unreachable_pub, unused_qualifications, reason = "generated")]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/example.Payments.rs"));
}

#[derive(Clone, PartialEq, prost::Message)]
struct ChargeRequest {
    #[prost(string, tag = "1")]
    account: String,
    #[prost(uint64, tag = "2")]
    cents: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Receipt {
    #[prost(uint32, tag = "1")]
    charge: u32,
    #[prost(uint64, tag = "2")]
    cents: u64,
}

/// Counts how often its handler ran.
#[derive(Clone, Default)]
struct Bank {
    runs: Arc<AtomicU32>,
}

impl Bank {
    fn runs(&self) -> u32 {
        self.runs.load(Ordering::Relaxed)
    }
}

#[tonic::async_trait]
impl Payments for Bank {
    async fn charge(&self, request: Request<ChargeRequest>) -> Result<Response<Receipt>, Status> {
        let charge = self.runs.fetch_add(1, Ordering::Relaxed) + 1;
        let ChargeRequest { account, cents } = request.into_inner();
        match account.as_str() {
            "nobody" => Err(Status::not_found("no such account")),
            "busy" => Err(Status::unavailable("the bank is closed")),
            _ => Ok(Response::new(Receipt { charge, cents })),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let engine = Engine::open(MemoryStore::new()).await?;
    let bank = Bank::default();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let server = Server::builder()
        .layer(IdempotencyLayer::new(engine))
        .add_service(PaymentsServer::new(bank.clone()))
        .serve_with_incoming(TcpIncoming::from(listener));
    tokio::spawn(server);
    let client = PaymentsClient::connect(format!("http://{address}")).await?;

    // A retry gets the stored message, and the status from its trailers.
    let first = call(&client, "key-1", "ada", 500).await;
    let retry = call(&client, "key-1", "ada", 500).await;
    assert_eq!((first.code, first.replayed), (Code::Ok, false));
    assert_eq!((retry.code, retry.replayed), (Code::Ok, true));
    assert_eq!(retry.receipt, first.receipt);
    assert_eq!(retry.trailing_status.as_deref(), Some("0"));
    assert_eq!(bank.runs(), 1);

    // The same key for another message is refused in gRPC's own words.
    let other = call(&client, "key-1", "ada", 900).await;
    assert_eq!(other.code, Code::FailedPrecondition);
    assert_eq!(bank.runs(), 1);

    // "Try later" is no outcome: it is not stored, and the retry runs.
    let closed = call(&client, "key-2", "busy", 500).await;
    let again = call(&client, "key-2", "busy", 500).await;
    assert_eq!((closed.code, closed.replayed), (Code::Unavailable, false));
    assert_eq!((again.code, again.replayed), (Code::Unavailable, false));
    assert_eq!(bank.runs(), 3);

    // A failure that is an outcome replays as the same failure.
    let missing = call(&client, "key-3", "nobody", 500).await;
    let still_missing = call(&client, "key-3", "nobody", 500).await;
    assert_eq!((missing.code, missing.replayed), (Code::NotFound, false));
    assert_eq!(still_missing.code, Code::NotFound);
    assert!(still_missing.replayed);
    assert_eq!(still_missing.message, missing.message);
    assert_eq!(bank.runs(), 4);

    println!("7 calls, 4 runs");
    Ok(())
}

/// What a call brought back.
struct Answer {
    code: Code,
    message: String,
    receipt: Option<Receipt>,
    /// The status of a good answer comes after its message.
    trailing_status: Option<String>,
    replayed: bool,
}

/// Charges `account` under `key`, and prints the answer.
async fn call(
    client: &PaymentsClient<Channel>,
    key: &'static str,
    account: &str,
    cents: u64,
) -> Answer {
    let mut request = Request::new(ChargeRequest {
        account: account.to_owned(),
        cents,
    });
    let key_value = MetadataValue::from_static(key);
    request.metadata_mut().insert("idempotency-key", key_value);
    let (status, receipt, metadata) = match client.clone().charge(request).await {
        Ok(response) => {
            let (metadata, receipt, _) = response.into_parts();
            (Status::ok(""), Some(receipt), metadata)
        }
        Err(status) => {
            let metadata = status.metadata().clone();
            (status, None, metadata)
        }
    };
    let text = |name| Some(metadata.get(name)?.to_str().ok()?.to_owned());
    let answer = Answer {
        code: status.code(),
        message: status.message().to_owned(),
        receipt,
        trailing_status: text("grpc-status"),
        replayed: text("idempotent-replayed").is_some(),
    };
    let replayed = if answer.replayed { ", replayed" } else { "" };
    let said = match &answer.receipt {
        Some(receipt) => format!("{receipt:?}"),
        None => answer.message.clone(),
    };
    println!(
        "{key} {account} {cents}: {:?}{replayed}: {said}",
        answer.code
    );
    answer
}
