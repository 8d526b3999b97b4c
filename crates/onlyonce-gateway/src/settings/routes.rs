//! What each route does with its requests.

use std::collections::BTreeSet;
use std::sync::Arc;

use http::{HeaderName, Uri};
use onlyonce_core::{OnLapse, Policy};
use onlyonce_mcp::{PatternError, Rules, Tools};

use super::check::is_upstream;
use super::contracts::Contracts;
use super::defaults;
use super::finding::Findings;
use super::table::RouteTable;
use crate::config::{
    Ask, Config, KeyPlace, Lookup, Match, Mcp, Operation, ProfileName, Protocol, REST, Route,
};

/// The routes in their order, and what holds for all other requests.
#[derive(Clone)]
pub(crate) struct Routes {
    pub(crate) all: Vec<RouteSettings>,
    /// None: what no route matches is not found.
    pub(crate) rest: Option<RouteSettings>,
    pub(crate) table: Arc<RouteTable>,
    /// Headers that contracts and settings give a meaning: no client can have them removed.
    pub(crate) read_headers: Arc<[HeaderName]>,
}

/// A route, or what holds where none matches.
#[derive(Clone)]
pub(crate) struct RouteSettings {
    /// None where no route matches.
    pub(crate) matches: Option<Match>,
    /// What its requests are called, unless by their path.
    pub(crate) operation: Option<Operation>,
    pub(crate) upstream: Uri,
    /// The same as it was given, without credentials.
    pub(crate) upstream_shown: String,
    /// The name or file of its profile.
    pub(crate) profile: String,
    /// Its contract, also where that does not hold.
    pub(crate) policy: Policy,
    pub(crate) treatment: Treatment,
    /// What is asked before a replay.
    pub(crate) auth_check: Option<Ask>,
    /// Where the upstream expects a key of its own.
    pub(crate) key_place: Option<KeyPlace>,
    /// Whether the upstream completes records in its own transactions.
    pub(crate) transactional: bool,
    /// How it is found out whether an operation happened.
    pub(crate) lookup: Option<Lookup>,
}

/// What is done with requests.
#[derive(Clone)]
pub(crate) enum Treatment {
    /// They pass through, unprotected.
    Pass,
    /// They run once.
    Once,
    /// They pass, and what the contract would do is counted.
    Observe,
    /// Those that are tool calls run once.
    Mcp(Box<McpSettings>),
}

/// An MCP endpoint.
#[derive(Clone)]
pub(crate) struct McpSettings {
    pub(crate) rules: Rules,
    pub(crate) origins: Vec<String>,
}

impl Routes {
    pub(super) fn of(
        config: &Config,
        contracts: &Contracts,
        findings: &mut Findings,
    ) -> Option<Self> {
        let general = config.upstream.as_deref();
        let general = general.and_then(|it| Address::of("upstream", it, findings));
        let all = config.route.iter().enumerate().map(|(number, route)| {
            let upstream = match &route.upstream {
                Some(own) => Address::of(&format!("route.{number}.upstream"), own, findings),
                None => general.clone(),
            };
            RouteSettings::of(config, contracts, number, upstream, findings)
        });
        // All of them, for what is to be told of each.
        let all: Vec<Option<RouteSettings>> = all.collect();
        let rest = general.map(|upstream| RouteSettings::rest(config, contracts, upstream));
        let table = RouteTable::of(config.route.iter().map(|route| &route.matches));
        let table = table.map_err(|error| findings.note("route", error.to_string()));
        Some(Self {
            all: all.into_iter().collect::<Option<_>>()?,
            rest: match rest {
                Some(rest) => Some(rest?),
                None => None,
            },
            table: Arc::new(table.ok()?),
            read_headers: read_headers(config, contracts),
        })
    }

    /// The routes, and the rest.
    pub(crate) fn each(&self) -> impl Iterator<Item = &RouteSettings> {
        self.all.iter().chain(&self.rest)
    }
}

/// The address of a server, and what can be shown of it.
#[derive(Clone)]
struct Address {
    uri: Uri,
    shown: String,
}

impl Address {
    fn of(at: &str, text: &str, findings: &mut Findings) -> Option<Self> {
        let uri = is_upstream(text).map_err(|why| findings.note(at, why));
        Some(Self {
            uri: uri.ok()?,
            shown: onlyonce_stores::shown(text),
        })
    }
}

impl RouteSettings {
    fn of(
        config: &Config,
        contracts: &Contracts,
        number: usize,
        upstream: Option<Address>,
        findings: &mut Findings,
    ) -> Option<Self> {
        let route = &config.route[number];
        let treatment = match (route.pass, route.protocol) {
            (true, _) => Some(Treatment::Pass),
            (false, Protocol::Mcp) => mcp(number, &route.mcp, findings),
            (false, Protocol::Http) if config.is_observed(Some(route)) => Some(Treatment::Observe),
            (false, Protocol::Http) => Some(Treatment::Once),
        };
        let policy = match contracts.of_route(Some(number)) {
            Ok(policy) => policy.clone(),
            // Nothing is promised there.
            Err(_) if route.pass => Policy::default(),
            Err(_) => return None,
        };
        let (treatment, upstream) = (treatment?, upstream?);
        let auth_check = route.auth_check.as_ref().or(config.auth_check.as_ref());
        Some(Self {
            matches: Some(route.matches.clone()),
            operation: route.operation.clone(),
            upstream: upstream.uri,
            upstream_shown: upstream.shown,
            profile: profile(config, Some(route)),
            policy: match &treatment {
                Treatment::Mcp(_) => of_tools(config, route, policy),
                Treatment::Pass | Treatment::Once | Treatment::Observe => policy,
            },
            treatment,
            auth_check: auth_check.cloned(),
            key_place: route.upstream_key_in.clone(),
            transactional: route.transactional,
            lookup: route.reconcile.clone(),
        })
    }

    /// For what no route matches.
    fn rest(config: &Config, contracts: &Contracts, upstream: Address) -> Option<Self> {
        Some(Self {
            matches: None,
            operation: None,
            upstream: upstream.uri,
            upstream_shown: upstream.shown,
            profile: profile(config, None),
            policy: contracts.of_route(None).as_ref().ok()?.clone(),
            treatment: match config.is_observed(None) {
                true => Treatment::Observe,
                false => Treatment::Once,
            },
            auth_check: config.auth_check.clone(),
            key_place: None,
            transactional: false,
            lookup: None,
        })
    }

    /// What it is called where its requests are counted.
    pub(crate) fn name(&self) -> String {
        let matches = self.matches.as_ref();
        matches.map_or_else(|| REST.to_owned(), ToString::to_string)
    }

    /// Whether its requests pass through, unprotected and unseen.
    pub(crate) fn passes(&self) -> bool {
        match self.treatment {
            Treatment::Pass => true,
            Treatment::Once | Treatment::Observe | Treatment::Mcp(_) => false,
        }
    }

    /// Whether its contract is only observed.
    pub(crate) fn is_observed(&self) -> bool {
        match self.treatment {
            Treatment::Observe => true,
            Treatment::Pass | Treatment::Once | Treatment::Mcp(_) => false,
        }
    }

    /// Whether its contract holds.
    pub(crate) fn enforces(&self) -> bool {
        !self.passes() && !self.is_observed()
    }
}

fn profile(config: &Config, route: Option<&Route>) -> String {
    let named = config.base_of(route).map(ProfileName::as_str);
    named.unwrap_or(defaults::profile().name()).to_owned()
}

fn mcp(number: usize, given: &Mcp, findings: &mut Findings) -> Option<Treatment> {
    let tools = Tools::new(&given.tools, &given.except);
    let wrong = |error: PatternError| {
        findings.note(format!("route.{number}.mcp.tools"), error.to_string());
    };
    let tools = tools.map_err(wrong).ok()?;
    let verifications = given.reconcile.iter();
    let rules = Rules {
        tools,
        call_ids: Rules::call_ids(&given.call_ids),
        reconcile: verifications.map(|it| it.0.clone()).collect(),
        ..Rules::new("")
    };
    Some(Treatment::Mcp(Box::new(McpSettings {
        rules,
        origins: given.origins.clone(),
    })))
}

/// The policy of tool calls: where nothing is said of it, what may have run is not run again, and a tool may
/// take its time.
fn of_tools(config: &Config, route: &Route, mut policy: Policy) -> Policy {
    let is_named = config.base_of(Some(route)).is_some();
    let rules = [&config.rules, &route.rules];
    if !is_named && rules.iter().all(|rules| rules.on_lapse.is_none()) {
        policy.on_lapse = OnLapse::Hold;
    }
    if !is_named && rules.iter().all(|rules| rules.execution_max.is_none()) {
        policy.execution_max = defaults::TOOL_EXECUTION_MAX;
    }
    policy
}

/// The headers that contracts and `address_header` name.
fn read_headers(config: &Config, contracts: &Contracts) -> Arc<[HeaderName]> {
    let mut names: BTreeSet<String> = BTreeSet::new();
    for policy in contracts.in_force(config) {
        let heard = policy.request_headers();
        names.extend(heard.iter().map(ToString::to_string));
    }
    names.extend(config.limits.address_header.clone());
    names.iter().filter_map(|name| name.parse().ok()).collect()
}
