//! A network of its own for one gateway: a namespace, and a pair of virtual interfaces into it. A
//! blackhole route in there cuts it off its store, and nothing else.

use std::net::Ipv4Addr;
use std::process;
use std::sync::{Mutex, PoisonError};

use crate::failure::Failure;
use crate::system::{run, runs};

/// Namespaces are called by this, the process that made them, and a number.
const PREFIX: &str = "onlyonce-chaos-";
const PURPOSE: &str = "give a gateway a network of its own, for the fault `partition`";

/// Networks being made: their numbers must differ.
static MAKING: Mutex<()> = Mutex::new(());

/// A network. It ends with this value.
pub(crate) struct Net {
    pub(crate) name: String,
    /// Where the gateway's upstream is, seen from inside.
    pub(crate) host: Ipv4Addr,
    /// The gateway.
    pub(crate) inside: Ipv4Addr,
    /// Where the servers of its store are, seen from inside; each on a route of its own.
    pub(crate) stores: Vec<Ipv4Addr>,
}

impl Net {
    /// Makes one with so many addresses for servers.
    pub(crate) fn make(servers: u8) -> Result<Self, Failure> {
        let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = run(&["ip", "-o", "-4", "address", "show"], PURPOSE)?;
        // Addresses that are reserved for tests of networks; no real host has one.
        let number = (1..=250)
            .find(|number| !taken.contains(&format!(" 198.18.{number}.")))
            .ok_or_else(|| Failure::new("all addresses for networks of gateways are taken"))?;
        let net = Self {
            name: format!("{PREFIX}{}-{number}", process::id()),
            host: Ipv4Addr::new(198, 18, number, 1),
            inside: Ipv4Addr::new(198, 18, number, 2),
            stores: (1..=servers)
                .map(|server| Ipv4Addr::new(198, 19, number, server))
                .collect(),
        };
        let link = format!("oo{}-{number}", process::id());
        let (host, inside) = (format!("{}/24", net.host), format!("{}/24", net.inside));
        ip(&format!("netns add {}", net.name))?;
        let name = &net.name;
        ip(&format!(
            "link add {link} type veth peer name eth0 netns {name}"
        ))?;
        ip(&format!("address add {host} dev {link}"))?;
        for store in &net.stores {
            ip(&format!("address add {store}/32 dev {link}"))?;
        }
        ip(&format!("link set {link} up"))?;
        ip(&format!("-n {name} address add {inside} dev eth0"))?;
        ip(&format!("-n {name} link set eth0 up"))?;
        ip(&format!("-n {name} link set lo up"))?;
        let all: Vec<_> = (0..net.stores.len()).collect();
        net.heal(&all)?;
        Ok(net)
    }

    /// Lets everything vanish that goes to these servers of the store.
    pub(crate) fn cut(&self, some: &[usize]) -> Result<(), Failure> {
        self.route("blackhole", "", some)
    }

    pub(crate) fn heal(&self, some: &[usize]) -> Result<(), Failure> {
        self.route("unicast", &format!(" via {}", self.host), some)
    }

    fn route(&self, kind: &str, via: &str, some: &[usize]) -> Result<(), Failure> {
        let name = &self.name;
        for store in some.iter().map(|at| self.stores[*at]) {
            ip(&format!("-n {name} route replace {kind} {store}/32{via}"))?;
        }
        Ok(())
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        // The interfaces go with it. Nobody is there to be told if it fails.
        let _ = ip(&format!("netns delete {}", self.name));
    }
}

/// Removes the networks of runs that were killed.
pub(crate) fn sweep() {
    let names = run(&["ip", "netns", "list"], PURPOSE).unwrap_or_default();
    for line in names.lines() {
        let name = line.split(' ').next().unwrap_or_default();
        let owner = name
            .strip_prefix(PREFIX)
            .and_then(|it| it.split('-').next());
        if owner.is_some_and(|owner| !runs(owner)) {
            let _ = ip(&format!("netns delete {name}"));
        }
    }
}

fn ip(words: &str) -> Result<(), Failure> {
    let words: Vec<_> = ["ip"].into_iter().chain(words.split(' ')).collect();
    run(&words, PURPOSE).map(drop)
}
