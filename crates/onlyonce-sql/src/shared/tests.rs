//! Names, options and versions.

use std::time::Duration;

use super::*;

#[test]
fn a_table_name_cannot_carry_a_statement() {
    for name in [
        "",
        "1st",
        "a b",
        "a;drop",
        "a'b",
        "a\"b",
        "A",
        "ä",
        "x".repeat(49).as_str(),
        "{table}",
    ] {
        assert!(Table::parse(name).is_err(), "{name}");
    }
    let table = Table::parse("_payments_2").unwrap();
    assert_eq!(
        table.fill("SELECT {table}.a FROM {table}"),
        "SELECT _payments_2.a FROM _payments_2"
    );
}

#[cfg(any(feature = "mysql", feature = "sqlite"))]
#[test]
fn our_options_are_taken_and_the_drivers_are_left() {
    let url = "mysql://u:p@h/db?table=t&ssl-mode=REQUIRED&archive=true&batch_max=5&connections=3";

    let (ours, left) = split(url, &["ssl-mode"]).unwrap();

    assert_eq!(left, "mysql://u:p@h/db?ssl-mode=REQUIRED");
    assert_eq!(
        (&*ours.table, ours.connections, ours.batch_max, ours.archive),
        ("t", 3, 5, true)
    );
    assert_eq!(
        split("mysql://h/db", &["ssl-mode"]).unwrap().1,
        "mysql://h/db"
    );
}

#[cfg(any(feature = "mysql", feature = "sqlite"))]
#[test]
fn an_option_that_is_nobodys_is_an_error() {
    let told = split("mysql://h/db?tabel=t", &["socket"])
        .unwrap_err()
        .to_string();

    assert!(told.contains("did you mean `table`?"), "{told}");
}

#[test]
fn options_out_of_bounds_are_an_error() {
    for options in [
        SqlOptions::new().connections(0),
        SqlOptions::new().connections(100_000),
        SqlOptions::new().batch_max(0),
        SqlOptions::new().timeout(Duration::ZERO),
        SqlOptions::new().table("no table"),
    ] {
        assert!(options.check().is_err(), "{options:?}");
    }
    assert!(SqlOptions::new().check().is_ok());
}

#[test]
fn a_schema_of_the_future_is_refused() {
    let migrations = Migrations {
        store: "sqlite",
        all: &["CREATE {table}", "ALTER {table}"],
    };
    let table = Table::parse("t").unwrap();

    let from = |found| migrations.from(found, &table).unwrap();
    assert_eq!(from(1), [(2, "ALTER t".to_owned())]);
    assert_eq!(from(0).len(), 2);
    assert!(from(2).is_empty());
    let told = migrations.from(3, &table).unwrap_err().to_string();
    assert!(told.contains("upgrade"), "{told}");
}

#[test]
fn what_completes_records_has_a_name_of_its_own_for_each_table() {
    let name = |table| completion_name(table).unwrap();

    assert_eq!(name(None), "onlyonce_complete");
    assert_eq!(name(Some("onlyonce_records")), "onlyonce_complete");
    assert_eq!(name(Some("shop")), "shop_complete");
    assert_eq!(name(Some("onlyonce")), "onlyonce_records_complete");
    assert!(completion_name(Some("a b")).is_err());
}
