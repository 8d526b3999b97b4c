//! The names that the front page promises. Removing or renaming one breaks those who use it, and does
//! not compile here first.

use std::any::type_name;
use std::future::Future;

/// The last part of a type's path, without its parameters.
fn named<T: ?Sized>() -> &'static str {
    let whole = type_name::<T>();
    let path = whole.split('<').next().unwrap_or(whole);
    path.rsplit("::").next().unwrap_or(path)
}

#[test]
fn the_front_page_keeps_its_names() {
    let names = [
        named::<onlyonce::Engine>(),
        named::<onlyonce::Execution>(),
        named::<onlyonce::Job>(),
        named::<onlyonce::Key>(),
        named::<onlyonce::MemoryStore>(),
        named::<onlyonce::OnLapse>(),
        named::<onlyonce::Policy>(),
        named::<onlyonce::Profile>(),
        named::<onlyonce::Ran<()>>(),
        named::<onlyonce::Reason>(),
        named::<onlyonce::Refusal>(),
        named::<onlyonce::Response>(),
        named::<onlyonce::RunError<String>>(),
        named::<onlyonce::StoreError>(),
        named::<dyn onlyonce::Store>(),
    ];

    let expected = [
        "Engine",
        "Execution",
        "Job",
        "Key",
        "MemoryStore",
        "OnLapse",
        "Policy",
        "Profile",
        "Ran",
        "Reason",
        "Refusal",
        "Response",
        "RunError",
        "StoreError",
        "dyn Store",
    ];
    for (name, expected) in names.iter().zip(expected) {
        assert!(expected.ends_with(name), "{name} is not {expected}");
    }
}

#[test]
fn the_modules_of_the_front_page_are_there() {
    let names = [
        named::<onlyonce::core::Engine>(),
        named::<onlyonce::event::Event>(),
        named::<onlyonce::job::Job>(),
        named::<onlyonce::policy::KeyNeed>(),
        named::<onlyonce::profile::Profile>(),
        named::<onlyonce::store::Claim>(),
    ];

    assert_eq!(
        names,
        ["Engine", "Event", "Job", "KeyNeed", "Profile", "Claim"]
    );
}

#[cfg(feature = "axum")]
#[test]
fn the_layer_is_on_the_front_page() {
    let names = [
        named::<onlyonce::IdempotencyLayer>(),
        named::<onlyonce::Principal>(),
        named::<onlyonce::ScopePart>(),
        named::<onlyonce::tower::NoExecution>(),
    ];

    assert_eq!(
        names,
        ["IdempotencyLayer", "Principal", "ScopePart", "NoExecution"]
    );
}

#[cfg(feature = "file")]
#[test]
fn stores_are_opened_by_their_url() {
    fn gives_a_store<F: Future>(_: impl Fn(&'static str) -> F) -> &'static str {
        named::<F::Output>()
    }

    assert_eq!(gives_a_store(onlyonce::open_store), "Result");
    assert_eq!(named::<onlyonce::stores::OpenError>(), "OpenError");
}

#[cfg(feature = "sqlite")]
#[test]
fn sqlx_is_the_version_that_the_stores_use() {
    assert_eq!(named::<onlyonce::sqlx::SqlitePool>(), "Pool");
    assert_eq!(named::<onlyonce::stores::sql::SqliteStore>(), "SqliteStore");
}
