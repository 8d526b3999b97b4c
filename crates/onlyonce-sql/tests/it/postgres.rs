//! The PostgreSQL store on a real server, directly and behind PgBouncer.

mod batching;
mod bed;
mod called;
mod failover;
mod given_up;
mod inside;
mod losing;
mod opening;
mod reference;
mod restarting;
mod sessions;
mod several;
mod standby;
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
