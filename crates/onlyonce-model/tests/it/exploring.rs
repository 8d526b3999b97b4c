//! Every order of events within small bounds.

use std::collections::BTreeSet;

use onlyonce_model::{Explored, Modelled, Plan};

fn explored(wanted: fn(&Modelled) -> bool) -> Vec<Explored> {
    let plans = Plan::small().into_iter().filter(|it| wanted(&it.model));
    let explored = plans.map(|plan| {
        let explored = plan.explore(2);
        println!("{}: {explored}", plan.name);
        assert!(explored.is_sound(), "{}: {explored}", plan.name);
        explored
    });
    explored.collect()
}

#[test]
fn processes_on_one_store_break_no_rule_in_any_order_of_events() {
    let engines = |model: &Modelled| matches!(model, Modelled::Engines(_));

    let explored = explored(engines);

    assert!(explored.iter().all(|it| it.states > 1_000));
    let seen: BTreeSet<_> = explored.iter().flat_map(|it| &it.seen).collect();
    let unseen: Vec<_> = explored
        .iter()
        .flat_map(|it| &it.unseen)
        .filter(|it| !seen.contains(it))
        .collect();
    assert_eq!(unseen, Vec::<&&str>::new());
}

#[test]
fn a_quorum_of_which_one_loses_its_disk_breaks_no_rule_in_any_order_of_events() {
    let quorum = |model: &Modelled| matches!(model, Modelled::Quorum(_));

    let explored = explored(quorum);

    assert!(explored.iter().all(|it| it.states > 1_000));
    assert!(explored.iter().all(|it| it.seen.contains(&"ran")));
}
