//! A store over independent servers: one register per slot, ballots, and a majority for every
//! decision (CASPaxos). What decides is [`Entry`](onlyonce_core::entry::Entry), as in every store that
//! decides in its own process; this crate has the protocol around it and nothing of the network.
//!
//! # Why what was decided is never lost
//!
//! 1. **Ballots.** A [`Ballot`] is a round and 80 random bits, drawn anew for each attempt: no two
//!    attempts share one. A server promises a ballot only if it is higher than the one it promised
//!    before, and accepts only *the very ballot that it promised last and still has the promise of*. So
//!    a server that forgot a promise cannot break it.
//! 2. **Majorities.** A step asks all servers for a promise and goes on when a majority has given
//!    it; the value with the highest ballot among their answers is what is there. A decided value was
//!    accepted by a majority, which has a server in common with every later one: it is always found.
//! 3. **Answers rest on decided values.** A step that changes something is answered once a majority
//!    accepted it; one that changes nothing, once a majority has accepted the same ballot. Otherwise
//!    what was found is written back first, with the step's own ballot.
//! 4. **Registers vanish, rounds do not.** A server drops a register by its own clock, when no record
//!    in this value *or any earlier one* can still be live ([`horizon`](SlotRegister)), and a tail
//!    later. For a register that is not there it promises only rounds above its *floor*: the
//!    highest round that it has promised for anything, as of some time ago that is shorter than any register
//!    lives. So an old value on a server that missed its end never has a higher ballot than a new one.
//! 5. **Deleting is writing.** Forgetting a record, or giving it back, writes a value without one,
//!    which stays as long as the record could have.
//! 6. **Lost data.** A server votes only with its identity: its place, the set of servers, and the
//!    set's epoch, checked by every step in the same atomic script. One that lost its data has none.
//!    It is admitted again by raising the epoch on a majority of the others, after which no vote of
//!    before counts, and then [writing every register](QuorumStore::write_all_back) to a majority
//!    that does not need it.
//!
//! # Time
//!
//! A register's value carries its moment on a time line of its own, which goes on by the time that has
//! passed on the servers since it was accepted: as long as a majority says at least. A wrong clock
//! of a minority moves nothing; wrong clocks of a majority end leases too early or too late. No clock
//! decides which of two values is the newer one.

pub use acceptor::{
    Accept, Accepted, Acceptor, Bell, Cursor, Fault, Held, Look, Names, Prepare, Prepared, Seen,
};
pub use admission::{Admission, Survey};
pub use ballot::Ballot;
pub use epoch::{EPOCH_FIRST, SharedEpoch, epoch_after};
pub use finding::Found;
pub use model::{
    FLOOR_EVERY, Model, ModelServer, PROMISE_KEPT, PROMISED_KEPT_MIN, Pass, Turned, VOTE_GOOD_FOR,
};
pub use proposer::{Answered, Decision, Manner, Next, Proposer, Tries};
pub use register::SlotRegister;
pub use seat::{Deed, Identity, Seat, Votes};
pub use server_time::ServerTime;
pub use store::{QuorumStore, Upkeep};

mod acceptor;
mod admission;
mod ballot;
mod epoch;
mod finding;
mod model;
mod operate;
mod proposer;
mod register;
mod seat;
mod server_time;
mod store;
mod trouble;
mod waiting;
mod write_back;

const NAME: &str = "quorum";
