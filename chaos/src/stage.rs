//! What a round plays on: a store, its gateways with a bad network on both of their sides, and the
//! upstream.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use onlyonce_testkit::proxy::Proxy;
use onlyonce_testkit::servers::{Server as _, free_port};

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
    /// The gateways, and what the servers of a quorum are behind.
    pub(crate) async fn set(&self) -> Result<(Vec<Place>, Vec<Proxy>), Failure> {
        let mut net = None;
        if self.faults.contains(&Fault::Partition) {
            let servers = u8::try_from(self.kind.addresses());
            net = Some(Net::make(
                servers.map_err(Failure::doing("count servers"))?,
            )?);
        }
        let doors = self.doors(net.as_ref()).await?;
        let mut places = Vec::new();
        for index in 0..self.kind.gateways() {
            // The second gateway has a network of its own, if there are to be partitions.
            let own = if index == 1 { net.take() } else { None };
            places.push(self.place(index, own, &doors).await?);
        }
        Ok((places, doors))
    }

    /// All gateways must name a server of a quorum alike, so that they share the way to it.
    async fn doors(&self, net: Option<&Net>) -> Result<Vec<Proxy>, Failure> {
        let Store::Quorum(quorum) = self.store else {
            return Ok(Vec::new());
        };
        let mut doors = Vec::new();
        for (at, server) in quorum.servers.iter().enumerate() {
            let ip = net.map_or(Ipv4Addr::LOCALHOST, |net| net.stores[at]);
            let door = Proxy::start_on(ip, &server.url()).await;
            doors.push(door.map_err(Failure::doing("start a proxy"))?);
        }
        Ok(doors)
    }

    async fn place(
        &self,
        index: usize,
        net: Option<Net>,
        doors: &[Proxy],
    ) -> Result<Place, Failure> {
        let cannot = || Failure::doing("start a proxy");
        let local = Ipv4Addr::LOCALHOST;
        let (host, inside, store) = match &net {
            Some(net) => (net.host, net.inside, net.stores[0]),
            None => (local, local, local),
        };
        let url = self.store.url(doors);
        let back = match self.store {
            Store::Server(_) => Some(Proxy::start_on(store, &url).await.map_err(cannot())?),
            Store::Folder(..) | Store::Sentinel(_) | Store::Cluster(_) | Store::Quorum(_) => None,
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
