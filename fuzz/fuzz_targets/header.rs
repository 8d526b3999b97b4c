//! The target `header`.
#![cfg_attr(fuzzing, no_main)]

onlyonce_fuzz::target!(header);
