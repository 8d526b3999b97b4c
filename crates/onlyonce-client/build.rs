//! The migrations are part of the program: a new one must build it anew.

#![allow(clippy::print_stdout, reason = "this is how cargo is told")]

fn main() {
    println!("cargo:rerun-if-changed=migrations");
}
