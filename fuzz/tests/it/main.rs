//! Every target over its whole corpus, and over what proptest thinks of.

mod corpus;
mod random;
