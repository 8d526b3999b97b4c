//! Real gateway processes, in front of services that are not ours, on shared stores: what happens
//! when several of them run, when one is killed, restarted, reloaded or told to stop.

mod foreign;
mod load;
mod process;
mod restarts;
mod several;
mod upstreams;
