//! The target `json`.
#![cfg_attr(fuzzing, no_main)]

onlyonce_fuzz::target!(json);
