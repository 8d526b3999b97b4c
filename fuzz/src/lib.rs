//! What must hold for any bytes at all. Each target is a plain function that panics if it does not:
//! libFuzzer looks for such bytes (`cargo xtask fuzz`), the ordinary tests try the corpus and what
//! proptest thinks of.

use std::process::ExitCode;

pub use self::admin::admin;
pub use self::codec::codec;
pub use self::config::config;
pub use self::header::header;
pub use self::json::json;
pub use self::key::key;
pub use self::policy::policy;

mod admin;
mod codec;
mod config;
mod header;
mod json;
mod key;
mod layered;
mod policy;

/// A target: it panics on bytes for which something does not hold.
pub type Target = fn(&[u8]);

/// All of them, by the names of their corpora.
pub const TARGETS: [(&str, Target); 7] = [
    ("admin", admin),
    ("codec", codec),
    ("config", config),
    ("header", header),
    ("json", json),
    ("key", key),
    ("policy", policy),
];

/// What no error, no log and no answer may show, where it is a secret. No text here contains it.
const NEEDLE: &str = "Zq7xNEEDLEx7qZ";

/// Makes the program of a target: for libFuzzer, or, built without it, for a few files.
#[macro_export]
macro_rules! target {
    ($name:ident) => {
        #[cfg(fuzzing)]
        libfuzzer_sys::fuzz_target!(|data: &[u8]| onlyonce_fuzz::$name(data));

        #[cfg(not(fuzzing))]
        fn main() -> std::process::ExitCode {
            onlyonce_fuzz::replay(onlyonce_fuzz::$name)
        }
    };
}

/// Gives a target the files that the program was given.
#[expect(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "the program of a target talks to the person who replays a file"
)]
pub fn replay(target: Target) -> ExitCode {
    let files: Vec<_> = std::env::args_os().skip(1).collect();
    if files.is_empty() {
        eprintln!("name the files to replay");
        return ExitCode::from(2);
    }
    for file in &files {
        let file = std::path::Path::new(file);
        match std::fs::read(file) {
            Ok(bytes) if std::panic::catch_unwind(|| target(&bytes)).is_err() => {
                eprintln!("{}: does not hold, see above", file.display());
                return ExitCode::FAILURE;
            }
            Ok(_) => {}
            Err(error) => {
                eprintln!("{}: cannot be read: {error}", file.display());
                return ExitCode::from(2);
            }
        }
        println!("{}: all holds", file.display());
    }
    ExitCode::SUCCESS
}
