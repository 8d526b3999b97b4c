//! The target `codec`.
#![cfg_attr(fuzzing, no_main)]

onlyonce_fuzz::target!(codec);
