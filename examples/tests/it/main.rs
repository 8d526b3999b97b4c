//! Runs the examples as a newcomer would, and the conformance suite against their custom store.

mod custom_store;
mod example;
mod serving;

use example::{Example, Told};
use onlyonce_testkit::servers::{MariaDb, MariaDbOptions, Postgres, PostgresOptions, Server};

#[tokio::test]
async fn the_axum_example_charges_once() {
    let told = Example::new("axum").arg("--demo").succeeds().await;

    told.has("charge:       201 Created {\"charge\":1,\"cents\":500}");
    told.has("its retry:    201 Created (replayed) {\"charge\":1,\"cents\":500}");
    told.has("another body: 422 Unprocessable Entity {");
    told.has("charges made: 1");
}

#[tokio::test]
async fn the_custom_store_example_ships_once() {
    let told = Example::new("custom_store").succeeds().await;

    assert_eq!(told.count("shipped by "), 1);
    assert_eq!(told.count("one: \"shipped by "), 1);
    assert_eq!(told.count("two: \"shipped by "), 1);
    told.has("same key, to Rome: ");
}

#[tokio::test]
async fn the_job_queue_example_sends_each_mail_once() {
    let told = Example::new("job_queue").succeeds().await;

    told.has("m-2 goes back: the job failed");
    told.has("ada@example.org: tried 1, sent 1");
    told.has("grace@example.org: tried 2, sent 1");
    told.has("edsger@example.org: tried 1, sent 1");
}

#[tokio::test]
async fn the_tonic_example_replays_trailers() {
    let told = Example::new("tonic").succeeds().await;

    told.has("key-1 ada 500: Ok, replayed: Receipt { charge: 1, cents: 500 }");
    told.has("key-1 ada 900: FailedPrecondition");
    told.has("key-3 nobody 500: NotFound, replayed: no such account");
    assert_eq!(
        told.count("key-2 busy 500: Unavailable: the bank is closed"),
        2
    );
    told.has("7 calls, 4 runs");
}

/// Whatever failed before or after the commit, on whichever database.
fn ordered_each_item_once(told: &Told) {
    told.has("order book: 201 Created ordered: book");
    told.has("retry book: 201 Created (replayed) ordered: book");
    told.has("order glass: 503 Service Unavailable");
    told.has("retry glass: 201 Created ordered: glass");
    told.has("order vase: 201 Created ordered: vase");
    told.has("retry vase: 201 Created (replayed) ordered: vase");
    told.has("orders: 200 OK 3");
}

#[tokio::test]
async fn the_transaction_example_orders_once_in_sqlite() {
    let told = Example::new("transaction").succeeds().await;

    ordered_each_item_once(&told);
}

#[tokio::test]
async fn the_transaction_example_orders_once_in_postgres() {
    let server = Postgres::start(PostgresOptions::default()).expect("the server starts");

    let told = Example::new("transaction").arg(&server.url());

    ordered_each_item_once(&told.succeeds().await);
}

#[tokio::test]
async fn the_transaction_example_orders_once_in_mariadb() {
    let server = MariaDb::start(MariaDbOptions::default()).expect("the server starts");

    let told = Example::new("transaction").arg(&server.url());

    ordered_each_item_once(&told.succeeds().await);
}

/// Dies at each boundary in turn, and is run again until it is paid.
#[tokio::test]
async fn the_ride_example_dies_at_every_boundary_and_repeats_no_finished_step() {
    let cases = [
        ("before-reserve", "reserve charge mail"),
        ("in-reserve", "reserve reserve charge mail"),
        ("after-reserve", "reserve charge mail"),
        ("in-charge", "reserve charge"),
        ("after-charge", "reserve charge mail"),
        ("in-mail", "reserve charge mail mail"),
        ("after-mail", "reserve charge mail"),
    ];
    let rides = cases.map(|(boundary, effects)| async move {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().to_str().expect("a path in UTF-8").to_owned();
        Example::new("ride").arg(&path).arg(boundary).dies().await;

        let told = Example::new("ride").arg(&path).succeeds().await;

        match boundary {
            "in-charge" => told.has("not paid: the job failed: step `charge` may have been run"),
            _ => told.has("paid: charge of ride 7"),
        }
        let done = std::fs::read_to_string(folder.path().join("effects.txt")).expect("effects");
        assert_eq!(
            done.split_whitespace().collect::<Vec<_>>().join(" "),
            effects,
            "{boundary}"
        );
    });

    for ride in rides.map(tokio::spawn) {
        ride.await.expect("no ride panics");
    }
}
