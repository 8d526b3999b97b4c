//! The gateway in front of real services.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod admin;
mod around;
mod audit;
mod audit_api;
mod callers;
mod conformance;
mod connections;
mod foreign;
mod heads;
mod limits;
mod metrics;
mod once;
mod openapi;
mod passing;
mod paths;
mod python;
mod refused_bodies;
mod running;
mod slow_clients;
mod store_lost;
mod support;
mod tls;
mod told;
mod upstream_trouble;
mod wire;
