//! What the stores of onlyonce share, for those who write one: errors and options of a store's URL,
//! [batches](batch), [time that outlives a process](moment) and [private files](private).

pub mod batch;
mod error;
pub mod moment;
mod options;
pub mod private;

pub use error::{OpenError, SCHEMES};
pub use options::{AROUND, Options, nearest};
