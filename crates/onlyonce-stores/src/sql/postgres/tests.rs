//! What needs no server.
