use super::*;

fn needed(args: &str) -> bool {
    let args: Vec<_> = args.split_whitespace().map(str::to_owned).collect();
    are_needed(&args)
}

#[test]
fn a_run_of_everything_needs_servers() {
    for all in [
        "",
        "key::",
        "--lib",
        "-- --nocapture",
        "-- -p onlyonce-core",
    ] {
        assert!(needed(all), "{all}");
    }
}

#[test]
fn packages_that_talk_to_servers_need_them() {
    for package in [
        "-p onlyonce-stores",
        "-ponlyonce-redis",
        "--package onlyonce-testkit",
        "--package=onlyonce-testkit@0.1.0",
        "-p onlyonce-core -p onlyonce-sql",
        "-p onlyonce-*",
    ] {
        assert!(needed(package), "{package}");
    }
}

#[test]
fn other_packages_do_without() {
    for package in [
        "-p onlyonce-core",
        "-p onlyonce-core onlyonce-stores",
        "--package=xtask -- -p onlyonce-stores",
        "-p onlyonce -p onlyonce-tower",
    ] {
        assert!(!needed(package), "{package}");
    }
}
