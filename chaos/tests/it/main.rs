//! Short runs of the real thing: what is shipped breaks no rule, and a planted bug is found.

mod short;
