//! Topology files, and how often chunks cross the links between switches.

use super::*;

/// Lists without brackets, and the one with brackets that the tests use.
fn expand(list: &str) -> Option<Vec<String>> {
    match list {
        "n[1-4]" => Some((1..=4).map(|n| format!("n{n}")).collect()),
        _ if list.contains('[') => None,
        _ => Some(list.split(',').map(str::to_owned).collect()),
    }
}

const TREE: &str = "
# two pods
SwitchName=s1 Nodes=n[1-4] LinkSpeed=900
SwitchName=s2 Nodes=n5,n6
switchname=s3 nodes=n7,n8
SwitchName=pod1 Switches=s1,s3 \\
   LinkSpeed=800
SwitchName=pod2 Switches=s2
SwitchName=top Switches=pod1,pod2
";

fn order(names: &[&str]) -> (Vec<String>, Vec<u32>) {
    let order = Topology::parse(TREE, expand).unwrap().order(names);
    (order.order.iter().map(|index| names[*index].to_owned()).collect(), order.switches)
}

#[test]
fn the_source_is_first_and_what_is_near_it_follows() {
    let (names, switches) = order(&["n7", "n1", "n5", "x", "n8", "n3", "n6", "n2"]);
    assert_eq!(names, ["n7", "n8", "n1", "n2", "n3", "n5", "n6", "x"]);
    assert_eq!(switches, [2, 3, 2, 1]);
}

#[test]
fn a_source_outside_the_tree_is_with_the_first_switch() {
    let (names, switches) = order(&["login", "n5", "n4", "n4"]);
    assert_eq!(names, ["login", "n4", "n4", "n5"]);
    assert_eq!(switches, [3, 1]);
    assert_eq!(order(&[]), (vec![], vec![]));
    assert_eq!(order(&["x", "y"]).1, [2]);
    assert_eq!(order(&["x"]).1, [1]);
    assert_eq!(order(&["n7", "n5"]).1, [1, 1]);
}

/// How often chunks come into a switch from another one.
fn crossings(kind: ScheduleKind, sizes: &[u32], chunks: u32) -> Vec<u32> {
    let mut situation = Situation::fresh(sizes.iter().sum(), chunks);
    situation.switches = sizes.to_vec();
    crossings_of(kind, situation)
}

fn crossings_of(kind: ScheduleKind, situation: Situation) -> Vec<u32> {
    let sizes = situation.switches.clone();
    let schedule = Schedule::new(kind, situation).unwrap();
    let nodes = count(&schedule);
    let switch = |node: u32| {
        let mut end = 0;
        sizes.iter().position(|size| {
            end += size;
            node < end
        })
    };
    let mut entered = vec![0; sizes.len()];
    for transfer in (0..nodes).flat_map(|node| all_sends(&schedule, node)) {
        if switch(transfer.from) != switch(transfer.to) {
            entered[switch(transfer.to).unwrap()] += 1;
        }
    }
    entered
}

#[test]
fn a_chunk_crosses_each_link_between_switches_once() {
    for kind in [ScheduleKind::Switches, ScheduleKind::Chain] {
        assert_eq!(crossings(kind, &[4, 7, 1, 16], 10), [0, 10, 10, 10], "{kind}");
    }
    let hypercube = crossings(ScheduleKind::BinomialPipeline, &[4, 7, 1, 16], 10);
    assert!(hypercube.iter().sum::<u32>() > 100, "{hypercube:?}");
}

#[test]
fn a_leaf_is_fed_from_its_own_switch() {
    let at = |leaves: &[usize], cut: &[(u32, u32)]| {
        let mut situation = Situation::fresh(16, 40);
        situation.switches = vec![8, 7, 1];
        situation.cut = cut.to_vec();
        leaves.iter().for_each(|leaf| situation.nodes[*leaf].role = NodeRole::Leaf);
        situation
    };
    for kind in [ScheduleKind::Switches, ScheduleKind::Chain] {
        for leaves in [&[4][..], &[9], &[8, 9, 10], &[1, 4, 7, 14], &[1, 2, 3, 4, 5, 6, 7]] {
            assert_eq!(crossings_of(kind, at(leaves, &[])), [0, 40, 40], "{kind} {leaves:?}");
        }
        // Where there is no other relay below its switch, or none that it is connected with.
        assert_eq!(crossings_of(kind, at(&[15], &[])), [0, 40, 40], "{kind}");
        let all = [8, 10, 11, 12, 13, 14].map(|node| (9, node));
        assert_eq!(crossings_of(kind, at(&[9], &all)), [0, 80, 40], "{kind}");
    }
}

#[test]
fn what_others_below_a_switch_hold_does_not_cross_to_its_new_first_relay() {
    let kind = ScheduleKind::Switches;
    let mut situation = Situation::fresh(16, 200);
    situation.switches = vec![8, 7, 1];
    let before = Schedule::new(kind, situation).unwrap();
    for at in [0, 5, 30, 111, 203] {
        let mut run = Lockstep::at(&before);
        run.run(&before, at);
        let situation = run.situation(&before, 8);
        let mut there = ChunkSet::empty();
        (9..15).for_each(|node| there.unite(&situation.nodes[node].holds));
        let has_last = situation.nodes[15].holds.len();
        let after = Schedule::new(kind, situation.clone()).unwrap();
        Lockstep::at(&after).run_all(&after);
        let crossed = crossings_of(kind, situation).into_iter().map(u64::from);
        assert!(crossed.eq([0, 200 - there.len(), 200 - has_last]), "at {at}");
    }
}

fn error(text: &str) -> TopologyError {
    Topology::parse(text, expand).unwrap_err()
}

#[test]
fn what_is_wrong_with_a_file_is_said_with_its_line() {
    let words = error("\nSwitchName=a Nods=n1");
    assert_eq!(words, TopologyError::Word { line: 2, found: "Nods=n1".to_owned() });
    assert_eq!(
        error("SwitchName"),
        TopologyError::Word { line: 1, found: "SwitchName".to_owned() }
    );
    assert_eq!(error("Nodes=n1 \\\n LinkSpeed=3"), TopologyError::Nameless { line: 2 });
    let names = error("SwitchName=a Nodes=n[1-");
    assert_eq!(names, TopologyError::Names { line: 1, found: "n[1-".to_owned() });
    let twice = |name: &str| TopologyError::Twice { line: 2, name: name.to_owned() };
    assert_eq!(error("SwitchName=a\nSwitchName=a"), twice("a"));
    assert_eq!(error("SwitchName=a Nodes=x,y\nSwitchName=b Nodes=y"), twice("y"));
    let ring = error("SwitchName=a Switches=b\nSwitchName=b Switches=a\nSwitchName=c Switches=d");
    assert_eq!(ring, TopologyError::Ring { name: "a".to_owned() });
    let own = error("SwitchName=a Switches=a \\");
    assert_eq!(own, TopologyError::Ring { name: "a".to_owned() });
}
