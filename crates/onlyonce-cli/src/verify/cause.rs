//! Why checks fail: root causes, each with a stable code, the harm it can do, why that matters and
//! how to mend it. One broken thing fails many checks; a report names it once.

use serde::Serialize;

use super::report::{Finding, Judgement};

/// What a broken promise can do, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Harm {
    /// An operation may happen twice.
    RunsTwice,
    /// One caller may get what belongs to another.
    Leaks,
    /// An operation may not happen although its caller gets a success.
    Loses,
    /// A good request may be refused or get no answer.
    Refuses,
    /// Clients may draw wrong conclusions.
    Misleads,
}

impl Harm {
    /// The harm in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::RunsTwice => "may run twice",
            Self::Leaks => "may show one caller's data to another",
            Self::Loses => "may lose an operation",
            Self::Refuses => "may refuse good requests",
            Self::Misleads => "may mislead clients",
        }
    }
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident $code:literal $harm:ident $title:literal why $why:literal mend $mend:literal;)*) => {
        /// A root cause.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Code {
            $($(#[$doc])* $name,)*
        }

        /// Every root cause, the worst first.
        pub static CODES: &[Code] = &[$(Code::$name),*];

        impl Code {
            /// Its name in reports and for `--explain`.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $code,)* }
            }

            /// What it can do.
            pub fn harm(self) -> Harm {
                match self { $(Self::$name => Harm::$harm,)* }
            }

            /// What is wrong.
            pub fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)* }
            }

            /// Why that matters.
            pub fn why(self) -> &'static str {
                match self { $(Self::$name => $why,)* }
            }

            /// How to mend it.
            pub fn mend(self) -> &'static str {
                match self { $(Self::$name => $mend,)* }
            }
        }
    };
}

codes! {
    /// A retry is not recognised.
    RunsAgain "runs-again" RunsTwice
        "a retry with the same key runs the operation again"
        why "A client that gets no answer sends the request again. Without a stored answer the card is charged, or the order placed, a second time."
        mend "Put the idempotency layer or gateway in front of this route, see that it reads the key from the header the client sends (--key-header), and that every instance uses the same store.";
    /// Duplicates at the same moment.
    DuplicatesRun "duplicates-run" RunsTwice
        "duplicates that arrive at the same moment run side by side"
        why "A double click or an impatient proxy sends the duplicate while the original still runs. Looking for a stored answer first and storing it later lets both through."
        mend "Claim the key atomically before the handler starts (INSERT with a unique key, SET NX), not after it ended, and in a store that all instances share.";
    /// The original is given up with its client.
    AbandonedRun "abandoned-run" RunsTwice
        "a request is given up when its client hangs up, and its retry runs again"
        why "Clients hang up on time-outs, which is exactly when they retry. The first try may have had its effect before it was stopped."
        mend "Let a handler that has started finish and store its answer after its client has gone: run it in a task of its own, or behind a gateway that does.";
    /// Some bodies are outside the protection.
    BodyNotCovered "body-not-covered" RunsTwice
        "a retry with a binary, empty or large body gets another answer than the first try"
        why "The operation ran again, or its stored answer was damaged. Protection that depends on the kind of body fails where nobody looks."
        mend "Store answers as bytes, not as text; cover requests without a body; raise the limit for request bodies, or refuse what is over it before it runs.";
    /// The payload is part of the identity.
    PayloadRuns "payload-runs" RunsTwice
        "another payload under a used key runs as a new operation"
        why "A client that rebuilds its request for a retry (a new timestamp, another order of fields) runs the operation twice under one key."
        mend "Look records up by the key alone, keep a fingerprint of the request beside the answer, and refuse a request whose fingerprint differs.";
    /// Quoted and bare keys differ.
    KeyFormRuns "key-form-runs" RunsTwice
        "the quoted and the bare form of a key are two keys"
        why "The standard header is a quoted string, most clients send it bare. A proxy or a library update that changes the form makes every retry in flight run again."
        mend "Read the header as a structured field: remove the quotes before the key is looked up, and refuse quotes that do not close.";
    /// JSON is compared as written and runs.
    SpellingRuns "spelling-runs" RunsTwice
        "the same JSON in another spelling is not recognised as a retry"
        why "Serializers may order members differently from one try to the next. Such a retry must get the first answer, neither run nor be refused."
        mend "Compare JSON bodies in a canonical form (RFC 8785), not as bytes.";
    /// Derived keys do not hold.
    DerivedKeyRuns "derived-key-runs" RunsTwice
        "the same data without a key runs again"
        why "The profile derives a key from the data where none is sent. If that fails, a form that is sent twice is taken twice."
        mend "Derive the key from the canonical form of the data, with the session as context, before anything volatile is added to it.";
    /// The record goes too early.
    ExpiresEarly "expires-early" RunsTwice
        "a record is gone before its time to live is over"
        why "A retry after the record is gone runs the operation again."
        mend "Count the time to live from the stored answer, in the unit the header has; see that the store does not evict (Redis: maxmemory-policy noeviction).";
    /// A required key is not demanded.
    UnkeyedRuns "unkeyed-runs" RunsTwice
        "a request without a key runs although a key is required"
        why "A client that forgets the key gets no protection and no sign of it: each of its retries runs again."
        mend "Require the key for this route: refuse requests without one with 400.";
    /// Callers share keys.
    SharedCallers "shared-callers" Leaks
        "two callers with the same key share one record"
        why "A caller that guesses or reuses a key gets the answer of somebody else's operation."
        mend "Make the verified identity of the caller part of what a record is looked up by.";
    /// Cookies are stored.
    CookiesReplayed "cookies-replayed" Leaks
        "a replay sets the first answer's cookie again"
        why "A session cookie that was meant for one moment and one caller is kept for the life of the record and handed out again."
        mend "Drop Set-Cookie from stored answers.";
    /// Different keys, one answer.
    KeysConfused "keys-confused" Loses
        "a new operation gets the answer of an older one"
        why "The caller gets a success, but what it asked for never ran."
        mend "Compare keys exactly: all bytes, case-sensitive, untruncated; and answer nothing from a cache that does not know the key.";
    /// Payloads are not compared.
    PayloadIgnored "payload-ignored" Loses
        "another payload under a used key gets the first answer"
        why "A client that reuses a key by mistake is told that its new order succeeded; it never ran."
        mend "Keep a fingerprint of method, path, query and body with the record, and refuse a request that differs (422 or 409, as the profile says).";
    /// Queries are not compared.
    QueryIgnored "query-ignored" Loses
        "another query under a used key gets the first answer"
        why "Where the query changes the meaning (?account=…), the second operation is reported done and never ran."
        mend "Make the query part of the request's fingerprint.";
    /// Unusable keys are taken.
    WeakKeys "weak-keys" Loses
        "keys that the profile refuses are taken"
        why "Empty, cut-off or doubled keys are shared by requests that have nothing to do with each other: one of them gets the other's answer and never runs."
        mend "Check the key before anything runs: not empty, within the length and the characters of the profile, one header line.";
    /// A good request is refused.
    GoodRefused "good-request-refused" Refuses
        "a request that the profile allows is refused or fails"
        why "A client that follows the contract cannot finish its operation, or gives up on a retry that should have been answered."
        mend "Look at the status and body in the evidence and at the server's log; if the endpoint is stricter on purpose, verify it against the rules it is configured with (--config, --key).";
    /// No answer at all.
    NoAnswer "no-answer" Refuses
        "the server did not answer"
        why "Nothing can be said about a promise while the server cannot be reached: this run proves nothing for the checks named here."
        mend "See that the server runs and stays up during the run, and give slow answers more time with --timeout.";
    /// Replays look different.
    WrongStatus "wrong-status" Misleads
        "an answer has another status than the profile says"
        why "Clients decide by the status whether to retry, to stop or to report an error."
        mend "Answer with the status of the profile, or verify against the profile or config that the endpoint really follows.";
    /// Old records stay.
    KeepsTooLong "keeps-too-long" Misleads
        "a record is still replayed after its time to live is over"
        why "A client that reuses a key after the agreed time expects a new operation."
        mend "Check a record's expiry when it is read, not only when the store is swept.";
    /// Content headers differ.
    HeadersChanged "headers-changed" Misleads
        "a replay loses or changes headers that describe the answer"
        why "Without Content-Type or Location a client cannot read the answer or find what was created."
        mend "Store the headers that describe the answer with it, and send them with each replay.";
    /// Headers of the first delivery.
    StaleHeaders "stale-headers" Misleads
        "a replay repeats headers that belonged to the first delivery"
        why "An old Date or a header of another connection confuses caches and proxies."
        mend "Drop Date and hop-by-hop headers from stored answers; the server writes its own.";
    /// Marks are missing.
    Marks "marks" Misleads
        "answers do not carry the profile's marks"
        why "Clients and logs cannot tell a replay from a first answer."
        mend "Set the profile's headers on replays (and on first answers where it says so).";
    /// Errors have another shape.
    ErrorShape "error-shape" Misleads
        "refusals do not have the profile's shape"
        why "A client that cannot read the error cannot tell \"wait\" from \"never\"."
        mend "Answer refusals with the content type and the members of the profile.";
    /// Waiting against the contract.
    WaitsWrong "waits-wrong" Misleads
        "a request that meets a running one waits, or does not, against the profile"
        why "Clients set their time-outs by what the contract says."
        mend "Set how duplicates are met: wait for the answer, or refuse at once with a Retry-After.";
    /// Retry-After is missing or wrong.
    RetryAfter "retry-after" Misleads
        "a caller that must wait gets no usable Retry-After"
        why "Clients without a hint retry at once and add load exactly when it hurts."
        mend "Send Retry-After with whole seconds of at least 1.";
    /// Keys of safe methods.
    CoversSafe "covers-safe-methods" Misleads
        "safe methods are held to the rules of keys"
        why "A GET that is replayed shows old data, and one that is refused for its key breaks readers that send a key with everything."
        mend "Apply the rules to the methods that the profile covers only.";
}

/// What cannot hold where no retry is recognised.
const OF_NO_REPLAY: [Code; 10] = [
    Code::DuplicatesRun,
    Code::AbandonedRun,
    Code::BodyNotCovered,
    Code::PayloadRuns,
    Code::KeyFormRuns,
    Code::SpellingRuns,
    Code::DerivedKeyRuns,
    Code::ExpiresEarly,
    Code::Marks,
    Code::HeadersChanged,
];

impl Code {
    /// The root cause called `name`.
    pub fn named(name: &str) -> Option<Self> {
        CODES.iter().copied().find(|code| code.name() == name)
    }

    /// Whether this cause is enough to make `check` fail with `code`, so that the latter is no
    /// cause of its own.
    fn explains(self, code: Self, check: &str) -> bool {
        if self == Self::RunsAgain {
            return OF_NO_REPLAY.contains(&code);
        }
        if self == Self::DuplicatesRun {
            let meets_original = code == Self::PayloadRuns && check == "in-flight-mismatch";
            return meets_original || code == Self::AbandonedRun;
        }
        let is_about_quotes = ["empty-key", "key-characters"].contains(&check);
        self == Self::KeyFormRuns && code == Self::WeakKeys && is_about_quotes
    }
}

/// A root cause that a run found, with the checks that it failed.
#[derive(Clone, Debug, Serialize)]
pub struct Cause {
    /// Its code, for `--explain`.
    pub code: &'static str,
    /// What it can do.
    pub harm: Harm,
    /// What is wrong.
    pub title: &'static str,
    /// Why that matters.
    pub why: &'static str,
    /// How to mend it.
    pub mend: &'static str,
    /// The checks that failed because of it; the first shows it best.
    pub checks: Vec<&'static str>,
}

/// The causes of all failed findings, the worst first. Every failed finding is in exactly one.
pub(crate) fn causes(findings: &[Finding]) -> Vec<Cause> {
    let failed: Vec<_> = findings
        .iter()
        .filter(|finding| finding.judgement == Judgement::Fail)
        .filter_map(|finding| Some((finding.id, finding.code?)))
        .collect();
    let present = |code: Code| failed.iter().any(|(_, it)| *it == code);
    let broader = |check: &str, code: Code| {
        let mut all = CODES.iter().copied().filter(|it| present(*it));
        all.find(|it| it.explains(code, check))
    };
    let root = |check: &str, code: Code| {
        let mut root = code;
        while let Some(next) = broader(check, root) {
            root = next;
        }
        root
    };
    let mut causes: Vec<Cause> = Vec::new();
    for code in CODES.iter().copied() {
        let of_root = failed.iter().copied();
        let of_root = of_root.filter(|(id, own)| root(id, *own) == code);
        // Those that show the cause itself go before its consequences.
        let (mut checks, consequences): (Vec<_>, Vec<_>) = of_root.partition(|it| it.1 == code);
        checks.extend(consequences);
        if !checks.is_empty() {
            causes.push(Cause {
                code: code.name(),
                harm: code.harm(),
                title: code.title(),
                why: code.why(),
                mend: code.mend(),
                checks: checks.into_iter().map(|(id, _)| id).collect(),
            });
        }
    }
    causes.sort_by_key(|cause| cause.harm);
    causes
}

#[cfg(test)]
mod tests;
