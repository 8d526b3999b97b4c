//! The scripts of an acceptor, one per phase, and the one that knows its identity.

use ::redis::{Cmd, Script};

const COMMON: &str = include_str!("scripts/common.lua");

/// All scripts.
pub(super) struct Scripts {
    pub(super) look: Step,
    pub(super) prepare: Step,
    /// The same, but refused by a server that is out of memory.
    pub(super) prepare_new: Step,
    pub(super) accept: Step,
    /// The same, but refused by a server that is out of memory.
    pub(super) accept_new: Step,
    pub(super) identity: Step,
}

/// One script.
pub(super) struct Step {
    text: String,
    hash: String,
}

impl Scripts {
    pub(super) fn new() -> Self {
        let (prepare, accept) = (
            include_str!("scripts/prepare.lua"),
            include_str!("scripts/accept.lua"),
        );
        let with = |flags: &str, text: &str| Step::new(&format!("{flags}\n{COMMON}\n{text}"));
        let identity = include_str!("scripts/identity.lua");
        Self {
            look: with("#!lua flags=no-writes", include_str!("scripts/look.lua")),
            prepare: with("#!lua flags=allow-oom", prepare),
            prepare_new: with("#!lua", prepare),
            accept: with("#!lua flags=allow-oom", accept),
            accept_new: with("#!lua", accept),
            identity: Step::new(&format!("#!lua flags=allow-oom\n{identity}")),
        }
    }
}

impl Step {
    fn new(text: &str) -> Self {
        let hash = Script::new(text).get_hash().to_owned();
        let text = text.to_owned();
        Self { text, hash }
    }

    /// The call by hash.
    pub(super) fn call(&self, keys: &[&[u8]], args: &[&[u8]]) -> Cmd {
        call("EVALSHA", &self.hash, keys, args)
    }

    /// The call with the whole text, for a server that does not know it yet.
    pub(super) fn call_in_full(&self, keys: &[&[u8]], args: &[&[u8]]) -> Cmd {
        call("EVAL", &self.text, keys, args)
    }
}

fn call(verb: &str, script: &str, keys: &[&[u8]], args: &[&[u8]]) -> Cmd {
    let mut cmd = Cmd::new();
    cmd.arg(verb).arg(script).arg(keys.len());
    for part in keys.iter().chain(args) {
        cmd.arg(*part);
    }
    cmd
}
