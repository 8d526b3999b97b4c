//! Programs with a wrong clock.

use std::process::Command;
use std::time::Duration;

use onlyonce_testkit::servers::faketime::{Skew, command};

const HOUR: u64 = 3_600;

fn seconds(mut date: Command) -> u64 {
    let asked = date.arg("+%s").output().unwrap();
    let text = String::from_utf8(asked.stdout).unwrap();
    text.trim().parse().unwrap()
}

#[test]
fn a_clock_can_be_ahead_and_behind() {
    let hour = Duration::from_secs(HOUR);

    let before = seconds(Command::new("date"));
    let ahead = seconds(command("date", Skew::Ahead(hour)).unwrap());
    let behind = seconds(command("date", Skew::Behind(hour)).unwrap());
    let after = seconds(Command::new("date"));

    assert!((before..=after).contains(&(ahead - HOUR)), "{ahead}");
    assert!((before..=after).contains(&(behind + HOUR)), "{behind}");
}

#[test]
fn a_program_with_a_wrong_clock_still_waits() {
    let mut sleep = command("sleep", Skew::Ahead(Duration::from_millis(1_500))).unwrap();

    assert!(sleep.arg("0.01").status().unwrap().success());
}
