//! The target `admin`.
#![cfg_attr(fuzzing, no_main)]

onlyonce_fuzz::target!(admin);
