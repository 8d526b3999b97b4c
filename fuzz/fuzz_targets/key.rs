//! The target `key`.
#![cfg_attr(fuzzing, no_main)]

onlyonce_fuzz::target!(key);
