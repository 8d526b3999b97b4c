//! The rules that must hold after every step, in words. Each is a function that says whether it
//! held; none changes anything.

pub(super) mod answers;
mod nested;
pub(super) mod refusals;
pub(super) mod replies;
pub(super) mod tenancy;
