//! A MariaDB Galera cluster of one's own: three nodes that all take writes.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::account::Account;
use super::daemon::{Daemon, Ports, Recipe};
use super::home::Home;
use super::mariadb::{ACCOUNT, DATA, DATABASE, MariaDbOptions, grant, install, serve, sql, url};
use super::program::{GALERA, RSYNC};
use super::{Server, ServerError, free_port};

const NODES: usize = 3;
const SYNCED: &str = "wsrep_local_state\t4";

/// A cluster of three nodes, on one machine.
///
/// Every node can be killed, paused and started again; one of them has to run, or none finds a
/// cluster to join.
pub struct Galera {
    nodes: Vec<GaleraNode>,
}

/// A node of a [`Galera`] cluster.
pub struct GaleraNode {
    daemon: Daemon,
}

struct GaleraRecipe {
    options: MariaDbOptions,
    cluster: Arc<Cluster>,
    /// This node's place in the cluster.
    place: usize,
    /// Where another node sends what this one has missed: all of it, or the rest.
    whole: u16,
    rest: u16,
    /// Whether it still has to begin the cluster that the others join.
    founds: AtomicBool,
}

/// Where the nodes meet.
#[derive(Default)]
struct Cluster {
    ports: Mutex<[Option<u16>; NODES]>,
}

impl Cluster {
    fn ports(&self) -> MutexGuard<'_, [Option<u16>; NODES]> {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn address(&self) -> String {
        let ports = *self.ports();
        let known: Vec<_> = ports.into_iter().flatten().map(group).collect();
        format!("gcomm://{}", known.join(","))
    }
}

impl Galera {
    /// Starts three nodes, and waits until all of them have everything.
    pub fn start(options: &MariaDbOptions) -> Result<Self, ServerError> {
        let cluster = Arc::new(Cluster::default());
        let first = GaleraNode::start(options, &cluster, 0)?;
        grant(first.daemon.home())?;
        let start = |place| GaleraNode::start(options, &cluster, place);
        let others: Result<Vec<_>, _> = thread::scope(|scope| {
            let starting: Vec<_> = (1..NODES)
                .map(|place| scope.spawn(move || start(place)))
                .collect();
            let started = starting.into_iter();
            started
                .map(|it| it.join().expect("starting does not panic"))
                .collect()
        });
        let mut nodes = vec![first];
        nodes.extend(others?);
        Ok(Self { nodes })
    }

    /// The nodes, in the order of the URL.
    pub fn nodes(&self) -> &[GaleraNode] {
        &self.nodes
    }

    /// Where clients find all of them, with this one first and the others in their order.
    pub fn url_from(&self, first: usize) -> String {
        let ports = self.nodes.iter().cycle().skip(first).map(Server::port);
        let hosts: Vec<_> = ports
            .take(self.nodes.len())
            .map(|port| format!("127.0.0.1:{port}"))
            .collect();
        url(&hosts.join(","), DATABASE)
    }
}

impl GaleraNode {
    fn start(
        options: &MariaDbOptions,
        cluster: &Arc<Cluster>,
        place: usize,
    ) -> Result<Self, ServerError> {
        let recipe = GaleraRecipe {
            options: options.clone(),
            cluster: Arc::clone(cluster),
            place,
            whole: free_port()?,
            rest: free_port()?,
            founds: AtomicBool::new(place == 0),
        };
        let user = Account::choose(None, ACCOUNT)?;
        let daemon = Daemon::start(recipe, user)?;
        Ok(Self { daemon })
    }

    /// What `mariadb` answers as an administrator of this node: a line for each row, tabs between
    /// columns.
    pub fn sql(&self, statements: &str) -> Result<String, ServerError> {
        sql(self.daemon.home(), &format!("USE {DATABASE}; {statements}"))
    }

    /// Whether this node has all that its cluster has, and takes writes.
    pub fn is_synced(&self) -> bool {
        is_synced(self.daemon.home()).is_ok()
    }
}

impl Server for GaleraNode {
    fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    fn url(&self) -> String {
        url(&format!("127.0.0.1:{}", self.port()), DATABASE)
    }
}

impl Recipe for GaleraRecipe {
    fn name(&self) -> &'static str {
        "galera"
    }

    fn install(&self, home: &Home) -> Result<(), ServerError> {
        // What is missing is missed here, and not in a script that the server starts.
        GALERA.find()?;
        RSYNC.find()?;
        if self.founds.load(Ordering::Relaxed) {
            return install(home);
        }
        // The others get their data from the cluster.
        let mut folder = Command::new("mkdir");
        folder.arg(home.file(DATA));
        home.run("mkdir", &folder)
    }

    fn configure(&self, _: &Home, ports: Ports) -> Result<(), ServerError> {
        self.cluster.ports()[self.place] = Some(ports.bus);
        Ok(())
    }

    fn command(&self, home: &Home, ports: Ports) -> Result<Command, ServerError> {
        let mut command = serve(home, ports, &self.options)?;
        let address = match self.founds.load(Ordering::Relaxed) {
            true => "gcomm://".to_owned(),
            false => self.cluster.address(),
        };
        let (listen, rest) = (group(ports.bus), group(self.rest));
        command
            .args(["--binlog-format=ROW", "--innodb-autoinc-lock-mode=2"])
            .args(["--wsrep-on=ON", "--wsrep-cluster-name=onlyonce"])
            .arg(format!("--wsrep-provider={}", GALERA.find()?.display()))
            .arg(format!("--wsrep-cluster-address={address}"))
            .arg(format!("--wsrep-node-address={listen}"))
            .arg(format!(
                "--wsrep-node-incoming-address={}",
                group(ports.main)
            ))
            .arg("--wsrep-sst-method=rsync")
            .arg(format!("--wsrep-sst-receive-address={}", group(self.whole)))
            .arg(format!(
                "--wsrep-provider-options=gmcast.listen_addr=tcp://{listen};\
                 ist.recv_addr={rest};ist.recv_bind={rest};gcache.size=32M"
            ));
        Ok(command)
    }

    fn check(&self, home: &Home, _: Ports) -> Result<(), String> {
        is_synced(home)?;
        // From now on it joins the others when it is started again.
        self.founds.store(false, Ordering::Relaxed);
        Ok(())
    }
}

fn group(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

fn is_synced(home: &Home) -> Result<(), String> {
    let asked = "SHOW STATUS WHERE Variable_name IN ('wsrep_local_state', 'wsrep_ready')";
    match sql(home, asked) {
        Ok(told) if told.contains(SYNCED) && told.contains("wsrep_ready\tON") => Ok(()),
        Ok(told) => Err(told),
        Err(error) => Err(error.to_string()),
    }
}
