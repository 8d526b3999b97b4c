//! The layer over HTTP: what each profile promises, how others failed, and what happens to bad
//! input, to other callers and to secrets.

mod bad_input;
mod derived_keys;
mod duplicates;
mod extension;
mod identity;
mod known_failures;
mod profiles;
mod secrets;
mod streaming;
mod support;
