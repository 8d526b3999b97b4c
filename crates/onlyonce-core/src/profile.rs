//! The named contracts. Each is a file in `profiles/`, which says how it differs from its base; what
//! a file may say is in [`Rules`]. Everything else sees the resolved [`Policy`].

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use crate::policy::Policy;

mod resolve;
mod rules;
mod show;
#[cfg(test)]
mod tests;
mod units;

pub use self::rules::{
    BodyMembers, Derive, Fingerprint, KeyTimes, Refused, Retention, Rules, Stored, Timeout,
    TtlHeader,
};
pub use self::units::{
    Body, Charset, ErrorBody, FirstIn, Header, KeyNeeds, Lapse, Maybe, MethodList, MethodName,
    NumbersAs, ReasonName, ReplayAs, StatusCode, StoreIs, Unit,
};

/// Each profile with its name, whose file is `profiles/NAME.toml`.
macro_rules! profiles {
    ($($(#[$doc:meta])+ $profile:ident = $name:literal,)+) => {
        /// A named preset of a [`Policy`].
        ///
        /// ```
        /// use onlyonce_core::{Policy, Profile};
        ///
        /// let policy: Policy = "stripe".parse::<Profile>().unwrap().policy();
        /// assert_eq!(policy, Profile::Stripe.policy());
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Profile {
            $($(#[$doc])+ $profile,)+
        }

        impl Profile {
            /// All of them.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$profile),+];

            /// Its name in config and on the command line.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$profile => $name,)+
                }
            }

            /// Its file, as it is in the repository.
            pub const fn file(self) -> &'static str {
                match self {
                    $(Self::$profile => include_str!(concat!("../profiles/", $name, ".toml")),)+
                }
            }
        }
    };
}

profiles! {
    /// Our own choice, and the default.
    Standard = "standard",
    /// Intake submissions with an event stream.
    Formbridge = "formbridge",
    /// The same service's earlier contract: a key is required on POST.
    Formbridge008 = "formbridge-008",
    /// Form submissions with derived keys and marks in the body.
    Broker = "broker",
    /// Sync operations of an offline client: UUIDv4 keys, no waiting.
    Guardian = "guardian",
    /// A general middleware: everything is stored, 5xx too.
    Middleware = "middleware",
    /// The IETF draft on the `Idempotency-Key` header.
    Ietf = "ietf",
    /// As Stripe's API does it.
    Stripe = "stripe",
    /// As version 2 of Stripe's API does it.
    StripeV2 = "stripe-v2",
    /// OASIS Repeatable Requests 1.0, as Azure uses it.
    RepeatableRequests = "repeatable-requests",
    /// Google's AIP-155: `request_id` in the body.
    Aip155 = "aip-155",
    /// As PayPal's REST APIs do it.
    Paypal = "paypal",
    /// As Square's API does it: `idempotency_key` in the body.
    Square = "square",
    /// The Agentic Commerce Protocol.
    Acp = "acp",
}

/// A profile, read.
struct Preset {
    rules: Rules,
    policy: Policy,
}

/// All presets, in the order of [`Profile::ALL`]; read once.
static PRESETS: LazyLock<Vec<Preset>> = LazyLock::new(|| {
    let read = |profile: Profile| {
        let mut rules = Rules::default();
        let mut next = Some(profile);
        while let Some(profile) = next {
            let own = Rules::read(profile.file()).expect("a preset's file is right");
            next = own.base.as_deref().map(|base| {
                base.parse()
                    .expect("a preset's base is a preset, and not itself")
            });
            rules = rules.over(own);
        }
        let policy = rules.clone().policy().expect("a preset is whole");
        Preset { rules, policy }
    };
    Profile::ALL.map(read).into()
});

/// All profiles, to list them.
pub fn all() -> [Profile; Profile::ALL.len()] {
    Profile::ALL
}

/// The profile of whoever names none.
pub const fn usual() -> Profile {
    Profile::Standard
}

impl Profile {
    /// The rules it stands for.
    pub fn policy(self) -> Policy {
        self.preset().policy.clone()
    }

    /// The same before they are a policy: every value is given, so that other rules can be laid
    /// [`over`](Rules::over) them.
    pub fn rules(self) -> &'static Rules {
        &self.preset().rules
    }

    /// What it is for, in one line.
    pub fn about(self) -> &'static str {
        self.rules().about.as_deref().unwrap_or_default()
    }

    /// The policy of a contract of one's own: a file like those in `profiles/`, whose `base` is the
    /// name of a profile, `standard` if it has none.
    ///
    /// ```
    /// use onlyonce_core::Profile;
    ///
    /// let policy = Profile::from_toml(
    ///     r#"
    ///     base = "stripe"
    ///     methods = ["POST", "DELETE"]
    ///     ttl = "7d"
    ///     [refusals]
    ///     mismatch = { status = 409 }
    ///     "#,
    /// )
    /// .unwrap();
    /// assert_eq!(policy.keep_for.as_secs(), 7 * 24 * 60 * 60);
    ///
    /// let told = Profile::from_toml("\nttl = \"5\"").unwrap_err().to_string();
    /// assert!(told.starts_with("line 2: "), "{told}");
    /// ```
    pub fn from_toml(text: &str) -> Result<Policy, ProfileError> {
        let rules = Rules::read(text)?;
        let base = match &rules.base {
            Some(name) => name.parse::<Self>()?,
            None => usual(),
        };
        Ok(rules.over(base.rules().clone()).policy()?)
    }

    fn preset(self) -> &'static Preset {
        &PRESETS[self as usize]
    }
}

impl Rules {
    /// Reads the rules in `text`, as TOML; what is wrong is said with its line.
    pub fn read(text: &str) -> Result<Self, ProfileError> {
        toml::from_str(text).map_err(|error| ProfileError::Written {
            line: error
                .span()
                .map_or(1, |span| 1 + text[..span.start].matches('\n').count()),
            why: error.message().to_owned(),
        })
    }
}

/// A contract that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// Something in its file is not right.
    #[error("line {line}: {why}")]
    Written {
        /// The line.
        line: usize,
        /// What is wrong, and what would be right.
        why: String,
    },
    /// Its base is no profile.
    #[error("base: {0}")]
    Base(#[from] UnknownProfile),
    /// Its rules do not fit together.
    #[error(transparent)]
    Rules(#[from] RuleError),
}

/// Rules that do not fit together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {why}")]
pub struct RuleError {
    /// The rule, as in `refusals.mismatch.status`.
    pub at: String,
    /// What is wrong, and what would be right.
    pub why: String,
}

impl RuleError {
    fn new(at: &str, why: impl Into<String>) -> Self {
        Self {
            at: at.to_owned(),
            why: why.into(),
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        usual().policy()
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no profile's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown profile {name:?}; there are: {}", Profile::ALL.map(Profile::name).join(", "))]
pub struct UnknownProfile {
    name: String,
}

impl FromStr for Profile {
    type Err = UnknownProfile;

    fn from_str(name: &str) -> Result<Self, UnknownProfile> {
        Self::ALL
            .into_iter()
            .find(|profile| profile.name() == name)
            .ok_or_else(|| UnknownProfile { name: name.into() })
    }
}
