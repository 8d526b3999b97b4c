//! The gateway in front of real services.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod admin;
mod around;
mod audit;
mod audit_api;
mod buffered;
mod callers;
mod conformance;
mod connections;
mod console;
mod deceived;
mod foreign;
mod heads;
mod identified;
mod limits;
mod matched;
mod mcp;
mod mcp_catalog;
mod metrics;
mod observed;
mod once;
mod openapi;
mod passing;
mod paths;
mod python;
mod reconciled;
mod refused_bodies;
mod running;
mod scopes;
mod slow_clients;
mod status;
mod store_lost;
mod support;
mod tls;
mod told;
mod transactional;
mod upstream_trouble;
mod wire;
