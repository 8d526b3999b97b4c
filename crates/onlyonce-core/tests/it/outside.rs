//! PROTOCOL 36: the ids that an operation carries to the services it calls.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use onlyonce_core::engine::FormerSecret;
use onlyonce_core::{Engine, Execution, MemoryStore, Outcome, Policy, SlotSecret};

use crate::support::{Node, Probe, node, node_of, policy};

/// What the handler of one attempt was told.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Told {
    operation: String,
    charge: String,
    mail: String,
    attempt: u32,
}

/// One attempt whose outcome stays unknown, so that the next one is another attempt.
async fn attempt(node: &Node, key: &str, policy: &Policy) -> Told {
    let told = Arc::new(Mutex::new(None));
    let noted = Arc::clone(&told);
    let work = move |execution: Execution| async move {
        *noted.lock().unwrap() = Some(Told {
            operation: execution.operation().to_string(),
            charge: execution.downstream("charge").to_string(),
            mail: execution.downstream("mail").to_string(),
            attempt: execution.attempt(),
        });
        Outcome::Unknown
    };
    let call = node.call(key, "the same", policy);
    node.engine.once(call, work).await;
    let told = told.lock().unwrap().take();
    told.expect("it ran")
}

#[tokio::test]
async fn every_attempt_in_every_process_has_the_same_ids_and_its_own_number() {
    let store = Arc::new(Probe::default());
    let (first, second) = (node(&store).await, node(&store).await);

    let one = attempt(&first, "key", &policy()).await;
    let two = attempt(&second, "key", &policy()).await;
    let three = attempt(&first, "key", &policy()).await;

    assert_eq!([one.attempt, two.attempt, three.attempt], [1, 2, 3]);
    for later in [two, three] {
        let attempt = one.attempt;
        assert_eq!(Told { attempt, ..later }, one);
    }
}

#[tokio::test]
async fn ids_differ_by_key_by_name_and_by_store_and_show_no_key() {
    let store = Arc::new(Probe::default());
    let (here, elsewhere) = (node(&store).await, node(&Arc::default()).await);

    let told = [
        attempt(&here, "secret-key-1", &policy()).await,
        attempt(&here, "secret-key-2", &policy()).await,
        attempt(&elsewhere, "secret-key-1", &policy()).await,
    ];

    let ids: BTreeSet<String> = told
        .into_iter()
        .flat_map(|it| [it.operation, it.charge, it.mail])
        .collect();
    assert_eq!(ids.len(), 9);
    for id in ids {
        assert!(!id.contains("secret") && !id.contains("key"), "{id}");
        let id = uuid::Uuid::parse_str(&id).unwrap();
        assert_eq!(id.get_version_num(), 8);
    }
}

/// Two names never make one key, whatever is in them.
#[tokio::test]
async fn the_slot_is_not_shown_and_no_name_is_the_operation_itself() {
    let engine = Engine::open(MemoryStore::new()).await.unwrap();
    let key = onlyonce_core::Key::new("key", &onlyonce_core::KeyRule::default()).unwrap();
    let slot = engine.slot(&engine.scope(), &key);

    let operation = onlyonce_core::DerivedId::of_operation(&slot);
    let nameless = onlyonce_core::DerivedId::of_downstream(&slot, "");

    assert_ne!(operation, nameless);
    let (id, slot) = (operation.uuid().simple().to_string(), slot.to_string());
    assert!(!slot.contains(&id[..8]), "{id} in {slot}");
}

fn secret(byte: u8) -> SlotSecret {
    SlotSecret::from_bytes([byte; SlotSecret::BYTES])
}

/// A process with the old secret alone has attempted it; one with both takes it over.
#[tokio::test]
async fn while_the_secret_is_rotated_ids_and_attempts_go_on() {
    let store = Arc::new(Probe::default());
    let old = node_of(Engine::builder(Arc::clone(&store)).secret(secret(1))).await;
    let one = attempt(&old, "key", &policy()).await;
    let both = Engine::builder(Arc::clone(&store)).secret(secret(2));
    let both = node_of(both.rotate_from(FormerSecret::Given(secret(1)))).await;

    let two = attempt(&both, "key", &policy()).await;

    assert_eq!((one.attempt, two.attempt), (1, 2));
    assert_eq!((one.operation, one.charge), (two.operation, two.charge));
}
