//! What a round plays on: a store, its gateways with a bad network on both of their sides, and the
//! upstream.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use onlyonce_testkit::proxy::Proxy;
use onlyonce_testkit::servers::free_port;

use crate::failure::Failure;
use crate::fault::Kind as Fault;
use crate::gateway::{Gateway, Program, Settings};
use crate::history::OnLapse;
use crate::manner::PASSED;
use crate::net::Net;
use crate::store::{Kind, Store};
use crate::upstream::Ledger;

/// The longest a duplicate waits at a gateway: less than most clients do.
const WAIT: &str = "3s";

/// A gateway and the network around it.
pub(crate) struct Place {
    pub(crate) gateway: Gateway,
    /// Between clients and it.
    pub(crate) front: Proxy,
    /// Between it and its store, where that is one server: a group tells its addresses itself.
    pub(crate) back: Option<Proxy>,
    pub(crate) net: Option<Net>,
}

/// All that is needed to make one.
pub(crate) struct Stage<'a> {
    pub(crate) kind: Kind,
    pub(crate) on_lapse: OnLapse,
    pub(crate) lease_ms: u64,
    pub(crate) store: &'a Store,
    pub(crate) ledger: &'a Ledger,
    pub(crate) program: &'a Program,
    pub(crate) folder: &'a Path,
    pub(crate) faults: &'a [Fault],
}

impl Stage<'_> {
    pub(crate) async fn places(&self) -> Result<Vec<Place>, Failure> {
        let mut places = Vec::new();
        for index in 0..self.kind.gateways() {
            places.push(self.place(index).await?);
        }
        Ok(places)
    }

    /// The second gateway has a network of its own, if there are to be partitions.
    async fn place(&self, index: usize) -> Result<Place, Failure> {
        let cannot = || Failure::doing("start a proxy");
        let has_net = index == 1 && self.faults.contains(&Fault::Partition);
        let net = if has_net { Some(Net::make()?) } else { None };
        let local = Ipv4Addr::LOCALHOST;
        let (host, inside, store) = match &net {
            Some(net) => (net.host, net.inside, net.store),
            None => (local, local, local),
        };
        let url = self.store.url();
        let back = match self.store {
            Store::Server(_) => Some(Proxy::start_on(store, &url).await.map_err(cannot())?),
            Store::Folder(..) | Store::Sentinel(_) | Store::Cluster(_) => None,
        };
        let url = back.as_ref().map_or(url, |proxy| proxy.url().to_owned());

        let listen = SocketAddr::from((inside, free_port()?));
        let upstream = self.ledger.serve(host, index).await?;
        let settings = Settings {
            program: self.program.clone(),
            folder: self.folder.to_owned(),
            index,
            listen,
            net: net.as_ref().map(|net| net.name.clone()),
            has_own_clock: self.faults.contains(&Fault::Clock),
        };
        let toml = self.toml(listen, upstream, &url)?;
        let gateway = Gateway::start(settings, &toml).await?;
        let front = Proxy::start(&listen.to_string()).await.map_err(cannot())?;
        Ok(Place {
            gateway,
            front,
            back,
            net,
        })
    }

    fn toml(
        &self,
        listen: SocketAddr,
        upstream: SocketAddr,
        store: &str,
    ) -> Result<String, Failure> {
        // Always loopback, also in a network of its own.
        let admin = free_port()?;
        Ok(format!(
            "upstream = \"http://{upstream}\"\n\
             listen = \"{listen}\"\n\
             admin = \"127.0.0.1:{admin}\"\n\
             store = \"{store}\"\n\
             scope = [\"route\"]\n\
             [rules]\n\
             lease = \"{}ms\"\n\
             on_lapse = \"{}\"\n\
             wait = \"{WAIT}\"\n\
             [[route]]\n\
             match = \"* {PASSED}/{{*rest}}\"\n\
             pass = true\n",
            self.lease_ms,
            self.on_lapse.name()
        ))
    }
}
