//! Recorded histories: the checker accepts what is right, finds what is planted, and finds
//! nothing in the engine.

mod flawed;
mod local;
mod planted;
mod processes;
mod remote;
mod sound;
mod story;
