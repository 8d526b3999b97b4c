//! The scripts, one for each step that must be atomic, in the dialect of the servers.

use ::redis::{Cmd, Script};

const COMMON: &str = include_str!("scripts/common.lua");
const LOOK: &str = include_str!("scripts/look.lua");

/// What the servers understand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dialect {
    /// Redis 7.0 or later: scripts have flags, so that what finishes work may go on under OOM.
    pub(super) flags: bool,
    /// Sharded channels: a message stays on the server that has the key.
    pub(super) sharded: bool,
    /// Replicas are waited for, also for what was only read: see `cover` in `common.lua`.
    pub(super) covering: bool,
}

/// All scripts of one dialect.
pub(super) struct Scripts {
    /// The same as `take`, but refused by a server that is out of memory.
    pub(super) claim: Step,
    pub(super) take: Step,
    pub(super) renew: Step,
    pub(super) complete: Step,
    pub(super) resolve: Step,
    pub(super) discard: Step,
    pub(super) release: Step,
    pub(super) look: Step,
    /// The same, which replicas have too, where they are waited for.
    pub(super) look_durable: Step,
    pub(super) forget: Step,
    pub(super) extend: Step,
    pub(super) count: Step,
    pub(super) agree: Step,
}

/// One script.
pub(super) struct Step {
    text: String,
    hash: String,
}

impl Scripts {
    pub(super) fn new(dialect: Dialect) -> Self {
        let writes = |text| Step::new(dialect, "allow-oom", "", text);
        Self {
            claim: Step::new(dialect, "", "", include_str!("scripts/take.lua")),
            take: writes(include_str!("scripts/take.lua")),
            renew: writes(include_str!("scripts/renew.lua")),
            complete: Step::new(
                dialect,
                "allow-oom",
                include_str!("scripts/complete_fast.lua"),
                include_str!("scripts/complete.lua"),
            ),
            resolve: writes(include_str!("scripts/resolve.lua")),
            discard: writes(include_str!("scripts/discard.lua")),
            release: writes(include_str!("scripts/release.lua")),
            look: Step::new(dialect, "no-writes", "", LOOK),
            look_durable: if dialect.covering {
                writes(LOOK)
            } else {
                Step::new(dialect, "no-writes", "", LOOK)
            },
            forget: writes(include_str!("scripts/forget.lua")),
            extend: writes(include_str!("scripts/extend.lua")),
            count: writes(include_str!("scripts/count.lua")),
            agree: writes(include_str!("scripts/agree.lua")),
        }
    }
}

impl Step {
    /// `fast` comes before what all scripts share, and may have answered already.
    fn new(dialect: Dialect, flag: &str, fast: &str, text: &str) -> Self {
        let first = match (dialect.flags, flag) {
            (true, "") => "#!lua\nlocal TOUCH = false".to_owned(),
            (true, flag) => format!("#!lua flags={flag}\nlocal TOUCH = false"),
            (false, _) => "local TOUCH = true".to_owned(),
        };
        let cover = dialect.covering && flag != "no-writes";
        let publish = if dialect.sharded {
            "SPUBLISH"
        } else {
            "PUBLISH"
        };
        let first = format!("{first}\nlocal PUBLISH, COVER = '{publish}', {cover}");
        let text = format!("{first}\n{fast}\n{COMMON}\n{text}");
        let hash = Script::new(&text).get_hash().to_owned();
        Self { text, hash }
    }

    /// The call by hash.
    pub(super) fn call(&self, key: &[u8], args: &[&[u8]]) -> Cmd {
        call("EVALSHA", &self.hash, key, args)
    }

    /// The call with the whole text, for a server that does not know it yet.
    pub(super) fn call_in_full(&self, key: &[u8], args: &[&[u8]]) -> Cmd {
        call("EVAL", &self.text, key, args)
    }
}

fn call(verb: &str, script: &str, key: &[u8], args: &[&[u8]]) -> Cmd {
    let bytes = args.iter().map(|arg| arg.len()).sum::<usize>();
    let mut cmd = Cmd::with_capacity(4 + args.len(), script.len() + key.len() + bytes + 16);
    cmd.arg(verb).arg(script).arg(1).arg(key);
    for arg in args {
        cmd.arg(*arg);
    }
    cmd
}
