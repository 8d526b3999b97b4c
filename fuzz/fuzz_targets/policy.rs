//! The target `policy`.
#![cfg_attr(fuzzing, no_main)]

onlyonce_fuzz::target!(policy);
