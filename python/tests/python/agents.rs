//! The adapters of agent frameworks, each with the framework itself and a scripted model, in an
//! environment of their own: the package does not need them.

use crate::package::with_package;
use crate::pytest_with;

const REQUIREMENTS: &str = include_str!("requirements-agents.txt");

#[test]
fn tools_of_agent_frameworks_run_once() {
    let python = with_package("python-agents", REQUIREMENTS);

    pytest_with(&python, "test_agents.py");
}
