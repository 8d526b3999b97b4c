//! What is tried: kinds of upstreams and handlers on stores, and the bugs that must be found.

use std::path::Path;
use std::time::Duration;

use clap::ValueEnum;

/// How long a process that died keeps others waiting.
pub(crate) const LEASE: Duration = Duration::from_secs(1);
/// How long a look may take. The first one at an operation always takes longer.
pub(crate) const LOOK_MAX: Duration = Duration::from_millis(300);

/// What the client talks to, and what makes a crash harmless there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Gateways; the upstream stores its answer in its own transaction
    Transactional,
    /// The same, and an attempt that was left behind ends after the one that overtook it
    Late,
    /// Gateways; the upstream takes keys
    Keyed,
    /// Gateways; the upstream can be asked
    Readable,
    /// Gateways; the upstream can do nothing of this, and the outcome is held
    Opaque,
    /// A handler of three durable steps, on the library
    Steps,
    /// A job that is looked up, on the library
    Job,
}

/// Where records are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Store {
    /// A folder; one process
    File,
    Redis,
    Postgres,
}

/// What is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The gateway, or the process on the library
    Front,
    /// The service with the effect, which is also the database's client
    Ledger,
}

/// A bug that must be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Bug {
    /// A look that treats a timeout as "did not happen"
    TimeoutIsNo,
    /// A database function that takes a lease which was lost
    LeaseSurvives,
    /// A step whose name is another one in every attempt
    NamelessStep,
}

/// One kind on one store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) kind: Kind,
    pub(crate) store: Store,
    pub(crate) bug: Option<Bug>,
}

impl Kind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Transactional => "transactional",
            Self::Late => "late",
            Self::Keyed => "keyed",
            Self::Readable => "readable",
            Self::Opaque => "opaque",
            Self::Steps => "steps",
            Self::Job => "job",
        }
    }

    /// The effects of one request.
    pub(crate) const fn effects(self) -> usize {
        match self {
            Self::Steps => crate::worker::STEPS.len(),
            Self::Transactional
            | Self::Late
            | Self::Keyed
            | Self::Readable
            | Self::Opaque
            | Self::Job => 1,
        }
    }

    pub(crate) const fn is_on_gateways(self) -> bool {
        match self {
            Self::Steps | Self::Job => false,
            Self::Transactional | Self::Late | Self::Keyed | Self::Readable | Self::Opaque => true,
        }
    }

    pub(crate) const fn is_in_database(self) -> bool {
        match self {
            Self::Transactional | Self::Late => true,
            Self::Keyed | Self::Readable | Self::Opaque | Self::Steps | Self::Job => false,
        }
    }

    /// Whether an outcome is looked up. What is still on its way when that happens would be missed:
    /// the lease must outlast it.
    pub(crate) const fn is_looked_up(self) -> bool {
        match self {
            Self::Readable | Self::Job => true,
            Self::Transactional | Self::Late | Self::Keyed | Self::Opaque | Self::Steps => false,
        }
    }

    /// Where a request goes.
    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::Transactional | Self::Late => "/transactional",
            Self::Keyed => "/keyed",
            Self::Readable => "/readable",
            Self::Opaque => "/opaque",
            Self::Steps => "/rides",
            Self::Job => "/jobs",
        }
    }

    /// What a gateway is told of its route.
    pub(crate) fn route(self) -> String {
        let own = match self {
            Self::Transactional | Self::Late => "transactional = true".to_owned(),
            Self::Keyed => {
                "upstream_keys = true\nupstream_key_in = \"header:idempotency-key\"".to_owned()
            }
            Self::Readable => format!(
                "reconcile = {{ ask = \"GET /charges/{{operation}}\", timeout = \"{}ms\", \
                 after = \"100ms\" }}",
                LOOK_MAX.as_millis()
            ),
            Self::Opaque => "rules = { on_lapse = \"hold\" }".to_owned(),
            Self::Steps | Self::Job => String::new(),
        };
        format!("[[route]]\nmatch = \"POST {}\"\n{own}\n", self.path())
    }

    /// What is killed. A late attempt is one whose gateway died.
    pub(crate) const fn targets(self) -> &'static [Target] {
        match self {
            Self::Late => &[Target::Front],
            Self::Transactional
            | Self::Keyed
            | Self::Readable
            | Self::Opaque
            | Self::Steps
            | Self::Job => &[Target::Front, Target::Ledger],
        }
    }
}

impl Store {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Redis => "redis",
            Self::Postgres => "postgres",
        }
    }

    /// One process owns the folder of a file store.
    pub(crate) const fn fronts(self) -> usize {
        match self {
            Self::File => 1,
            Self::Redis | Self::Postgres => 2,
        }
    }
}

impl Bug {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::TimeoutIsNo => "timeout-is-no",
            Self::LeaseSurvives => "lease-survives",
            Self::NamelessStep => "nameless-step",
        }
    }

    /// Where it is.
    const fn kind(self) -> Kind {
        match self {
            Self::TimeoutIsNo => Kind::Job,
            Self::LeaseSurvives => Kind::Late,
            Self::NamelessStep => Kind::Steps,
        }
    }
}

/// All plans of these kinds on these stores; with a bug, those where it is.
pub(crate) fn plans(kinds: &[Kind], stores: &[Store], bug: Option<Bug>) -> Vec<Plan> {
    let is_asked = |plan: &Plan| {
        let is_kind = kinds.is_empty() || kinds.contains(&plan.kind);
        let is_store = stores.is_empty() || stores.contains(&plan.store);
        let is_bug = bug.is_none_or(|bug| bug.kind() == plan.kind);
        // What is in one transaction is in one database.
        let fits = !plan.kind.is_in_database() || plan.store == Store::Postgres;
        is_kind && is_store && is_bug && fits
    };
    let kinds = Kind::value_variants().iter();
    let all = kinds.flat_map(|kind| {
        let stores = Store::value_variants().iter();
        stores.map(|store| Plan {
            kind: *kind,
            store: *store,
            bug,
        })
    });
    all.filter(is_asked).collect()
}

impl Plan {
    pub(crate) fn name(&self) -> String {
        format!("{} on {}", self.kind.name(), self.store.name())
    }

    /// The settings of a gateway.
    pub(crate) fn toml(&self, listen: u16, admin: u16, ledger: u16, store: &str) -> String {
        format!(
            "upstream = \"http://127.0.0.1:{ledger}\"\n\
             listen = \"127.0.0.1:{listen}\"\n\
             admin = \"127.0.0.1:{admin}\"\n\
             store = \"{store}\"\n\
             [rules]\n\
             lease = \"{}ms\"\n\
             wait = \"2s\"\n\
             {}",
            LEASE.as_millis(),
            self.kind.route()
        )
    }

    /// The address of a store in a folder.
    pub(crate) fn folder_url(folder: &Path) -> String {
        format!("file:{}/data", folder.display())
    }
}

#[cfg(test)]
mod tests {
    use super::Kind;

    #[test]
    fn what_the_guide_shows_is_what_is_tried() {
        let guide = include_str!("../../docs/guides/crashes.md");

        assert!(guide.contains("transactional = true\n"));
        for kind in [Kind::Keyed, Kind::Readable, Kind::Opaque] {
            let shown = format!("```toml\n{}```\n", kind.route());
            assert!(guide.contains(&shown), "{shown}");
        }
    }
}
