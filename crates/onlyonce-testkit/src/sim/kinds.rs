//! The kinds of things a run counts, so that a test can show that all of them happen.

use onlyonce_core::Reason;

macro_rules! kinds {
    ($(#[$doc:meta])* $name:ident { $($(#[$about:meta])* $kind:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$about])* $kind,)+ }

        impl $name {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$kind,)+];

            /// In words.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $text,)+ }
            }
        }
    };
}

kinds! {
    /// What went wrong on purpose.
    Fault {
        /// A verb did not reach the store.
        LostRequest = "lost request",
        /// A verb reached the store; its reply was lost.
        LostReply = "lost reply",
        /// A verb took long to reach the store.
        SlowRequest = "slow request",
        /// A reply took long.
        SlowReply = "slow reply",
        /// A copy of a claim arrives later.
        CopiedClaim = "copied claim",
        /// A copy of a renewal arrives later.
        CopiedRenew = "copied renew",
        /// A copy of a completion arrives later.
        CopiedComplete = "copied complete",
        /// A copy of a release arrives later.
        CopiedRelease = "copied release",
        /// A process stops for ever.
        Crash = "crash",
        /// The same, after the handler and before its answer is stored.
        CrashBeforeComplete = "crash before complete",
        /// A process stops for a while.
        Pause = "pause",
        /// A process's clock jumps forward.
        ClockForward = "clock forward",
        /// A process's clock jumps back.
        ClockBack = "clock back",
        /// The store answers nobody for a while.
        Outage = "outage",
        /// A caller comes with another credential.
        Rotation = "credential rotation",
        /// A process starts with the next secrets of a rotation.
        NextSecrets = "next slot secrets",
        /// A process is told to shut down.
        Shutdown = "shutdown",
        /// A caller goes away.
        HangUp = "hang-up",
        /// An operator forgets a record.
        Forget = "forget",
        /// An operator keeps a record longer.
        Extend = "extend",
        /// An operator answers what is unknown.
        Resolve = "resolve",
    }
}

kinds! {
    /// What callers heard.
    Heard {
        /// The handler ran, and its answer is stored.
        Ran = "ran",
        /// The handler ran, and its answer is not stored.
        RanUnstored = "ran, not stored",
        /// The handler ran without protection.
        RanUnprotected = "ran, unprotected",
        /// A stored answer.
        Replayed = "replayed",
        /// An answer shared with the attempt that ran in the same process, and not stored.
        Shared = "shared, not stored",
        /// Another meaning.
        Mismatch = "mismatch",
        /// Another credential.
        OtherCredential = "other credential",
        /// Still running.
        InProgress = "in progress",
        /// Too many wait.
        TooManyWaiters = "too many waiters",
        /// Nobody knows.
        OutcomeUnknown = "outcome unknown",
        /// The handler was too slow.
        TimedOut = "timed out",
        /// Nothing ran.
        NotRun = "not run",
        /// The store has not taken the answer yet.
        NotStored = "not stored",
        /// The store does not answer.
        StoreDown = "store down",
        /// The process is going away.
        ShuttingDown = "shutting down",
        /// A refusal that no call of the simulator can get.
        Impossible = "impossible",
        /// Nothing: the caller hung up.
        HungUp = "hung up",
        /// Nothing: the process crashed.
        CutOff = "cut off",
    }
}

impl Heard {
    pub(super) const fn refused(reason: Reason) -> Self {
        match reason {
            Reason::Mismatch => Self::Mismatch,
            Reason::OtherCredential => Self::OtherCredential,
            Reason::InProgress => Self::InProgress,
            Reason::TooManyWaiters => Self::TooManyWaiters,
            Reason::OutcomeUnknown => Self::OutcomeUnknown,
            Reason::TimedOut => Self::TimedOut,
            Reason::NotRun => Self::NotRun,
            Reason::NotStored => Self::NotStored,
            Reason::StoreDown => Self::StoreDown,
            Reason::ShuttingDown => Self::ShuttingDown,
            Reason::MissingKey
            | Reason::BadKey
            | Reason::KeyOutOfTime
            | Reason::BadTtl
            | Reason::Unscoped
            | Reason::Unverified
            | Reason::RequestTooLarge
            | Reason::RequestUnreadable
            | Reason::RequestEncoded
            | Reason::TooManyRunning
            | Reason::TooMuchBuffered
            | Reason::OverQuota
            | Reason::TooManyBadRequests
            | Reason::Panicked
            | Reason::ResponseTooLarge => Self::Impossible,
        }
    }
}

kinds! {
    /// What else was seen to happen.
    Seen {
        /// A handler started.
        Started = "handlers started",
        /// A handler panicked.
        Panicked = "panics",
        /// A handler passed its deadline.
        TimedOut = "timeouts",
        /// A lapsed claim was taken over.
        TookOver = "take-overs",
        /// An overtaken holder gave the stored answer.
        Overtaken = "overtaken holders",
        /// A lapsed claim was held back from a second run.
        Held = "held lapses",
        /// A duplicate joined the attempt in its process.
        Attached = "attached",
        /// A duplicate waited for another process.
        Waited = "waits",
        /// A lease was renewed.
        Renewed = "renewals",
        /// A holder learned that its lease was lost.
        LeaseLost = "leases lost",
        /// A result went to the background.
        Stalled = "stalled completions",
        /// A result was given up.
        Abandoned = "abandoned completions",
        /// A finished record expired.
        Expired = "expired records",
        /// A released token was claimed again, and stayed dead.
        Dead = "dead tokens",
    }
}
