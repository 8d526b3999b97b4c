//! The services over real HTTP: the documents' own flows and tests, each named after its place.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod audit;
mod browser;
mod d0_flows;
mod d1_edge_cases;
mod d2_tests;
mod d3_cases;
mod d4_tests;
mod foreign;
mod forms;
mod intakes;
mod observed;
mod postgres;
mod support;
mod tools;
mod webhooks;
