//! The PostgreSQL store on a real server, directly and behind PgBouncer.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its support too"
)]

mod batching;
mod bed;
mod inside;
mod opening;
mod private;
mod restarting;
mod support;
mod traffic;
mod upkeep;
mod waiting;

mod direct {
    use super::bed::Bed;

    onlyonce_testkit::conformance_suite!(Bed::direct().await);
}

mod pooled {
    use super::bed::Bed;

    onlyonce_testkit::conformance_suite!(Bed::pooled().await);
}
