//! The protocol as models: every order of events within stated bounds, on the code that decides.
//!
//! The simulator draws orders of events from seeds, and sees long runs. A model is small, and *all* its
//! orders are explored: by [Stateright](https://www.stateright.rs), breadth first, so that what it finds is
//! shortest. Nothing here is a copy of a decision: the models call
//! [`Entry`](onlyonce_core::entry::Entry) and [`judge`](onlyonce_core::engine::judge), and those of the quorum
//! [`Tries`](onlyonce_quorum::Tries), [`SlotRegister`](onlyonce_quorum::SlotRegister) and the
//! [acceptor](onlyonce_quorum::Model). The rules have the simulator's names.
//!
//! - [`engines`]: processes and one store, on a network that loses, delays and repeats.
//! - [`quorum`]: proposers and three acceptors, one of which loses its disk.

pub mod engines;
mod explore;
mod plans;
pub mod quorum;
mod rules;

pub use explore::{Explored, explore, explore_until_broken};
pub use plans::{Modelled, Plan, planted_in_engines, planted_in_quorum};
