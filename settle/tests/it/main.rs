//! Short runs of the real thing: what is shipped leaves nothing twice and nothing in doubt, and planted
//! bugs are found.

mod short;
