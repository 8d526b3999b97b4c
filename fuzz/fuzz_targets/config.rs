//! The target `config`.
#![cfg_attr(fuzzing, no_main)]

onlyonce_fuzz::target!(config);
