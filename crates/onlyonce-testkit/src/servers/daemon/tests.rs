//! A daemon on a server that does what the test says.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::*;

/// A shell that runs a script; it is ready when it has written so.
#[derive(Clone)]
struct Script {
    /// How often it finds its port taken.
    taken: usize,
    starts: Arc<AtomicUsize>,
    ports: Arc<Mutex<Vec<u16>>>,
}

impl Script {
    fn whose_port_is_taken(taken: usize) -> Self {
        Self {
            taken,
            starts: Arc::default(),
            ports: Arc::default(),
        }
    }
}

impl Recipe for Script {
    fn name(&self) -> &'static str {
        "script"
    }

    fn install(&self, _: &Home) -> Result<(), ServerError> {
        Ok(())
    }

    fn configure(&self, _: &Home, ports: Ports) -> Result<(), ServerError> {
        self.ports.lock().unwrap().push(ports.main);
        Ok(())
    }

    fn command(&self, _: &Home, _: Ports) -> Result<Command, ServerError> {
        let start = self.starts.fetch_add(1, Ordering::Relaxed);
        let mut command = Command::new("sh");
        command.arg("-c").arg(if start < self.taken {
            "echo 'bind: Address already in use'; exit 1"
        } else {
            "echo at your service; while :; do sleep 1; done"
        });
        Ok(command)
    }

    fn check(&self, home: &Home, _: Ports) -> Result<(), String> {
        let log = home.log(0);
        if log.contains("service") {
            Ok(())
        } else {
            Err(log)
        }
    }
}

fn ourselves() -> Account {
    Account::choose(None, "nobody").unwrap()
}

#[test]
fn a_server_whose_port_was_taken_gets_another() {
    let script = Script::whose_port_is_taken(2);

    let daemon = Daemon::start(script.clone(), ourselves()).unwrap();

    let ports = script.ports.lock().unwrap();
    assert_eq!(ports.len(), 3);
    assert!(ports[0] != ports[1] && ports[1] != ports[2]);
    assert_eq!(daemon.ports().main, ports[2]);
}

#[test]
fn a_server_that_never_gets_a_port_says_so() {
    let started = Daemon::start(Script::whose_port_is_taken(usize::MAX), ourselves());

    let error = started.err().unwrap().to_string();
    assert!(error.contains("was taken"), "{error}");
    assert!(error.contains("Address already in use"), "{error}");
}
