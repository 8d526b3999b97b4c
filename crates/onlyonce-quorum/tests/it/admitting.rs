//! Servers that lost their data, hang, or are heard too late, one order of events at a time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::StatusCode;
use onlyonce_core::{Claim, Claimed, Completed, Response, Store};
use onlyonce_quorum::{QuorumStore, SharedEpoch};

use super::keeper::Keeper;
use super::server::{Flaw, Held, Server, Weather, Wire};
use super::world::{Planted, claim, quorum};

const LONG: Duration = Duration::from_secs(3600);

fn three() -> Vec<Arc<Server>> {
    (0..3).map(Server::new).collect()
}

fn wired(servers: &[Arc<Server>], flaw: Flaw, seed: u64) -> (Vec<Arc<Wire>>, Arc<SharedEpoch>) {
    let epoch = Arc::new(SharedEpoch::default());
    let weather = Arc::new(Mutex::new(Weather::default()));
    let wires = (seed..).zip(servers);
    let wires = wires.map(|(seed, it)| Wire::new(it, &epoch, &weather, flaw, seed));
    (wires.collect(), epoch)
}

/// A process: its store, and its wires to the servers.
fn process(servers: &[Arc<Server>], flaw: Flaw) -> (Arc<QuorumStore>, Vec<Arc<Wire>>) {
    let (wires, epoch) = wired(servers, flaw, 1);
    (quorum(&wires, &epoch, 1), wires)
}

fn keeper(servers: &[Arc<Server>]) -> Keeper {
    let (wires, epoch) = wired(servers, Flaw::None, 101);
    Keeper::new(wires, epoch, 101)
}

async fn complete(store: &QuorumStore, claim: &Claim) -> Completed {
    let response = Arc::new(Response::new(StatusCode::OK, "stored"));
    store
        .complete(&claim.lease(), &response, LONG)
        .await
        .unwrap()
}

fn set_up(server: &Server, is_up: bool) {
    server.shelf.lock().unwrap().is_up = is_up;
}

/// Whether an answer that was acknowledged is found with the first server gone. The third had accepted it
/// before it lost its disk; the first hears of it after the third was admitted.
async fn is_found_after_an_admission(flaw: Flaw) -> bool {
    let servers = three();
    let (store, wires) = process(&servers, flaw);
    let keeper = keeper(&servers);
    let first = claim(1, 1);
    store.claim(&first).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    for wire in &wires[..2] {
        wire.held.send_replace(Held::Accepts);
    }
    let completing = tokio::spawn(async move { complete(&store, &first).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    servers[2].lose_disk(false);
    assert!(keeper.admit(2, Planted::Nothing).await);
    // The question reaches the first server, and never the second.
    wires[0].held.send_replace(Held::Nothing);
    let completed = completing.await.unwrap();
    assert!(matches!(completed, Completed::Stored(_)), "{completed:?}");
    set_up(&servers[0], false);

    let found = keeper.store.claim(&claim(1, 2)).await.unwrap();

    let Claimed::Taken(record) = found else {
        panic!("{found:?}")
    };
    record.response().is_some()
}

#[tokio::test(start_paused = true)]
async fn an_acceptance_of_a_lost_disk_counts_with_none_of_after_the_admission() {
    assert!(is_found_after_an_admission(Flaw::None).await);
    assert!(!is_found_after_an_admission(Flaw::FollowsEpoch).await);
}

/// Whether a claim is still told of after it has expired. The third server hung with a renewal of it in
/// its socket, until shortly before its own copy of the claim was over.
async fn is_told_after_it_expired(flaw: Flaw) -> bool {
    let servers = three();
    let (store, wires) = process(&servers, flaw);
    let brief = |token| Claim {
        lease_for: Duration::from_secs(20),
        keep_for: Duration::from_secs(30),
        ..claim(1, token)
    };
    store.claim(&brief(1)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    wires[2].held.send_replace(Held::Everything);
    let renewed = store
        .renew(&brief(1).lease(), Duration::from_secs(20))
        .await;
    renewed.unwrap();
    tokio::time::sleep(Duration::from_secs(98)).await;
    wires[2].held.send_replace(Held::Nothing);
    // The two others drop it after lease, retention and a tail.
    tokio::time::sleep(Duration::from_secs(15)).await;
    set_up(&servers[0], false);

    let found = store.claim(&brief(2)).await.unwrap();

    !matches!(found, Claimed::Granted { .. })
}

#[tokio::test(start_paused = true)]
async fn what_a_server_hears_too_late_revives_nothing() {
    assert!(!is_told_after_it_expired(Flaw::None).await);
    assert!(is_told_after_it_expired(Flaw::NeverLate).await);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_has_waited_for_as_long_as_anything_is_kept_is_admitted() {
    let servers = three();
    let (store, _) = process(&servers, Flaw::None);
    let keeper = keeper(&servers);
    let brief = Claim {
        keep_for: Duration::from_secs(600),
        ..claim(1, 1)
    };
    store.claim(&brief).await.unwrap();
    servers[2].lose_disk(false);
    keeper.follow().await;

    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(keeper.admit_who_waited().await, Vec::<usize>::new());
    tokio::time::sleep(Duration::from_secs(100)).await;
    set_up(&servers[1], false);
    assert_eq!(keeper.admit_who_waited().await, Vec::<usize>::new());
    set_up(&servers[1], true);
    assert_eq!(keeper.admit_who_waited().await, [2]);

    set_up(&servers[0], false);
    store.claim(&claim(2, 2)).await.unwrap();
}
