use super::*;

#[test]
fn a_missing_program_names_its_package_and_how_to_get_it() {
    let program = Program::new("no-such-server", "some-package");

    let error = program.find().unwrap_err().to_string();

    assert_eq!(
        error,
        "no-such-server is not installed; on Debian: `apt-get install --no-install-recommends \
         some-package`"
    );
}

#[test]
fn the_newest_postgres_comes_first() {
    let folders = postgres_folders();
    let versions: Vec<u32> = folders
        .iter()
        .map(|folder| folder.parent().unwrap().file_name().unwrap())
        .map(|version| version.to_str().unwrap().parse().unwrap())
        .collect();

    assert!(versions.is_sorted_by(|newer, older| newer > older));
}
