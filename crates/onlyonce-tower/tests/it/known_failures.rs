//! How other idempotency layers failed, and what must hold instead. The numbers are those of the
//! list of known failures.

mod ran_twice;
mod stuck;
mod wrong_answer;
