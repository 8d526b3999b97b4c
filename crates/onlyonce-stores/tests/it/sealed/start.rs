//! A ring that is not the store's refuses to start, and says what to do.

use super::*;

const KEY_C: &str = "c 3f9YkS4Qm2bB0x1nVtq8m5n0p7uK0fYkS4Qm2bB0x1k=";

async fn refusal(store: &Arc<MemoryStore>, ring: &str) -> String {
    let ring = KeyRing::parse(ring).unwrap();
    match Sealed::open(store.clone(), ring).await {
        Err(error) => error.to_string(),
        Ok(_) => panic!("it started"),
    }
}

async fn starts(store: &Arc<MemoryStore>, ring: &str) {
    sealed(store.clone(), ring).await;
}

#[tokio::test]
async fn a_wholly_wrong_ring_refuses_to_start() {
    let store = Arc::new(MemoryStore::new());
    starts(&store, KEY_A).await;

    let refusal = refusal(&store, KEY_B).await;

    assert_eq!(
        refusal,
        "the sealed store cannot be used: it is sealed with key `a`, which is not in the ring: \
         add it back, or write `a retired` if no record needs it any more"
    );
    starts(&store, KEY_A).await;
}

#[tokio::test]
async fn another_key_of_the_same_name_refuses_to_start() {
    let store = Arc::new(MemoryStore::new());
    starts(&store, KEY_A).await;
    let impostor = KEY_B.replace("b ", "a ");

    let refusal = refusal(&store, &impostor).await;

    assert!(
        refusal.contains("another key than the one that is called `a`"),
        "{refusal}"
    );
}

#[tokio::test]
async fn a_ring_starts_before_during_and_after_a_rotation() {
    let store = Arc::new(MemoryStore::new());

    starts(&store, KEY_A).await;
    starts(&store, &format!("{KEY_A}\n{KEY_B}")).await;
    starts(&store, &format!("{KEY_B}\n{KEY_A}")).await;
    starts(&store, &format!("{KEY_B}\na retired")).await;
    starts(&store, &format!("{KEY_C}\n{KEY_B}\na retired")).await;
    starts(&store, &format!("{KEY_C}\nb retired\na retired")).await;

    assert!(refusal(&store, KEY_C).await.contains("sealed with key `a`"));
    let forgetful = format!("{KEY_C}\na retired");
    assert!(
        refusal(&store, &forgetful)
            .await
            .contains("sealed with key `b`")
    );
}

#[tokio::test]
async fn a_wrong_ring_is_still_noticed_after_a_key_is_retired() {
    let store = Arc::new(MemoryStore::new());
    starts(&store, KEY_A).await;
    starts(&store, &format!("{KEY_B}\na retired")).await;

    let refusal = refusal(&store, &format!("{KEY_C}\na retired")).await;

    assert!(
        refusal.contains("sealed with key `b`, which is not in the ring"),
        "{refusal}"
    );
}

#[tokio::test]
async fn what_cannot_be_read_refuses_to_start() {
    let store = Arc::new(MemoryStore::new());
    store.agree("seal-check", b"\xff\xff").await.unwrap();

    let refusal = refusal(&store, KEY_A).await;

    assert!(refusal.contains("`seal-check` cannot be read"), "{refusal}");
}

#[tokio::test]
async fn the_store_keeps_nothing_of_a_key_to_notice_that_by() {
    let store = Arc::new(MemoryStore::new());
    starts(&store, KEY_A).await;

    let agreed = store.agree("seal-check", b"").await.unwrap();

    let agreed = String::from_utf8(agreed).unwrap();
    let (id, digest) = agreed.split_once(' ').unwrap();
    assert_eq!(id, "a");
    assert_eq!(digest.len(), 64);
    assert!(
        !digest.contains("b97916cd8187"),
        "the key itself, in hexadecimal digits"
    );
}

#[tokio::test]
async fn a_store_that_is_down_is_an_error_of_the_store() {
    let rough = Rough::new(Arc::new(MemoryStore::new()));
    rough.always(Fault::Fail(StoreErrorKind::Unavailable));
    let ring = KeyRing::parse(KEY_A).unwrap();

    let opened = Sealed::open(rough, ring).await;

    let error = opened.err().expect("it cannot be checked");
    assert_eq!(error.to_string(), "rough store: unavailable");
}
