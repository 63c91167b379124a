//! The layouts of the paper on HYDRA: its figures 1 and 6, and the words that explain a layout.
//!
//! Never random.

use outboard_layout::{
    CapacityKind, DeviceIndex, Eligibility, LayoutChannel, LayoutConstraint, LayoutDevice,
    LayoutError, LayoutOffcode, LayoutProblem, LayoutSolution, OffcodeIndex, Refusal, WhyThere,
    draw_svg, draw_text, solve,
};

const HOST: DeviceIndex = DeviceIndex(0);
const NIC: DeviceIndex = DeviceIndex(1);

fn device(name: &str) -> LayoutDevice {
    LayoutDevice {
        name: name.to_owned(),
        kind: name.to_owned(),
        memory_bytes: None,
        offcodes: None,
        load_per_mille: None,
    }
}

/// An offcode of 10 bytes that costs so much on each device.
fn offcode(name: &str, costs: &[Option<u64>]) -> LayoutOffcode {
    let eligible = costs.iter().map(|cost| match cost {
        Some(cost_ns_per_s) => Eligibility::Runs { cost_ns_per_s: *cost_ns_per_s },
        None => Eligibility::Refused("it has no body for it".to_owned()),
    });
    LayoutOffcode {
        name: name.to_owned(),
        class: 0,
        home: HOST,
        eligible: eligible.collect(),
        memory_bytes: 10,
        load_per_mille: 0,
    }
}

/// A channel that costs 5 on one device and 100 between two.
fn channel(a: usize, b: usize, devices: usize) -> LayoutChannel {
    let cost = |x, y| if x == y { 5 } else { 100 };
    LayoutChannel {
        name: format!("{a} to {b}"),
        a: OffcodeIndex(a),
        b: OffcodeIndex(b),
        cost_ns_per_s: (0..devices).map(|x| (0..devices).map(|y| cost(x, y)).collect()).collect(),
    }
}

fn solved(problem: &LayoutProblem) -> LayoutSolution {
    solve(problem, || false).unwrap_or_else(|error| panic!("{error}"))
}

/// Figure 1: the application creates α, which requires β; both are offloaded.
fn deployment() -> LayoutProblem {
    LayoutProblem {
        devices: vec![device("host"), device("nic")],
        offcodes: vec![
            offcode("application", &[Some(0), None]),
            offcode("alpha", &[Some(9), Some(9)]),
            offcode("beta", &[Some(9), Some(9)]),
        ],
        constraints: vec![LayoutConstraint::Pull(OffcodeIndex(1), OffcodeIndex(2))],
        channels: vec![channel(0, 1, 2), channel(1, 2, 2)],
        current: Vec::new(),
    }
}

#[test]
fn figure_1_deploys_both_offcodes_on_the_device() {
    let solution = solved(&deployment());
    assert_eq!(solution.placement, [HOST, NIC, NIC]);
    assert_eq!(solution.cost_ns_per_s, 123);
    assert_eq!(solution.gap_per_mille(), 0);
    assert_eq!(solution.explanations[0].why, WhyThere::OnlyDevice);
    assert_eq!(solution.explanations[1].why, WhyThere::Offloaded);
}

/// Figure 6: GUI, TO service, orderer and broadcast. The service holds a reference to the orderer
/// of the first kind, the orderer one to the broadcast of the second.
fn total_order(
    first: fn(OffcodeIndex, OffcodeIndex) -> LayoutConstraint,
    second: fn(OffcodeIndex, OffcodeIndex) -> LayoutConstraint,
) -> LayoutProblem {
    LayoutProblem {
        devices: vec![device("host"), device("nic")],
        offcodes: vec![
            offcode("gui", &[Some(0), None]),
            offcode("service", &[Some(0), None]),
            offcode("orderer", &[Some(9), Some(9)]),
            offcode("broadcast", &[None, Some(9)]),
        ],
        constraints: vec![
            LayoutConstraint::Link(OffcodeIndex(0), OffcodeIndex(1)),
            first(OffcodeIndex(1), OffcodeIndex(2)),
            second(OffcodeIndex(2), OffcodeIndex(3)),
        ],
        channels: vec![channel(0, 1, 2), channel(1, 2, 2), channel(2, 3, 2)],
        current: Vec::new(),
    }
}

#[test]
fn figure_6_puts_the_orderer_where_the_broadcast_is_and_exchanged_constraints_on_the_host() {
    let offloaded = solved(&total_order(LayoutConstraint::Link, LayoutConstraint::Pull));
    assert_eq!(offloaded.placement, [HOST, HOST, NIC, NIC]);
    let exchanged = solved(&total_order(LayoutConstraint::Pull, LayoutConstraint::Link));
    assert_eq!(exchanged.placement, [HOST, HOST, HOST, NIC]);
    for one in [0, 1, 3] {
        assert_eq!(offloaded.explanations[one].device, exchanged.explanations[one].device);
    }
    let because = Box::new(Refusal::NotEligible("it has no body for it".to_owned()));
    let refused = Refusal::Pull { with: OffcodeIndex(1), because };
    assert_eq!(exchanged.explanations[2].refused, [(NIC, refused)]);
    assert_eq!(exchanged.explanations[2].why, WhyThere::Pulled(OffcodeIndex(1)));
}

#[test]
fn a_gang_is_offloaded_whole_or_not_at_all() {
    let mut problem = deployment();
    problem.constraints = vec![LayoutConstraint::Gang(vec![OffcodeIndex(1), OffcodeIndex(2)])];
    problem.devices[1].offcodes = Some(1);
    let gang = solved(&problem);
    assert_eq!(gang.placement, [HOST, HOST, HOST]);
    assert_eq!(gang.explanations[1].refused, [(NIC, Refusal::Gang { with: OffcodeIndex(2) })]);
    // One-sided, the second may go alone.
    problem.constraints = vec![LayoutConstraint::GangIf(OffcodeIndex(1), OffcodeIndex(2))];
    assert_eq!(solved(&problem).placement, [HOST, HOST, NIC]);
}

#[test]
fn refusals_say_which_constraint_refused() {
    let mut problem = deployment();
    problem.constraints.clear();
    problem.devices[1].memory_bytes = Some(15);
    problem.offcodes[2].class = 1;
    let solution = solved(&problem);
    assert_eq!(solution.placement, [HOST, HOST, NIC]);
    let full =
        Refusal::Full { of: CapacityKind::Memory, needs: 10, free: 5, by: vec![OffcodeIndex(2)] };
    assert_eq!(solution.explanations[1].refused, [(NIC, full)]);
    let refusals = solution.explanations[1].refusals(&problem);
    assert_eq!(refusals, ["not on `nic`: it takes 10 bytes of memory, `beta` leave 5"]);
    problem.devices[1].memory_bytes = Some(5);
    let solution = solved(&problem);
    let large = Refusal::TooLarge { of: CapacityKind::Memory, needs: 10, has: 5 };
    assert_eq!(solution.explanations[2].refused, [(NIC, large)]);
}

#[test]
fn costs_decide_and_are_said() {
    let mut problem = deployment();
    problem.devices.push(device("core"));
    problem.offcodes = vec![offcode("one", &[None, Some(30), Some(12)])];
    problem.constraints.clear();
    problem.channels.clear();
    let solution = solved(&problem);
    assert_eq!(solution.placement, [DeviceIndex(2)]);
    let explanation = &solution.explanations[0];
    assert_eq!(explanation.why, WhyThere::Cheapest { by_ns_per_s: 18, than: NIC });
    assert_eq!(
        explanation.sentence(&problem),
        "`one` is on `core`: it costs 18 ns/s less there than on `nic`, the second best"
    );
    problem.constraints.push(LayoutConstraint::Pin(OffcodeIndex(0), NIC));
    let pinned = solved(&problem);
    assert_eq!(pinned.explanations[0].why, WhyThere::Pinned);
    assert_eq!(pinned.explanations[0].refused[1].1, Refusal::Pinned(NIC));
}

#[test]
fn an_impossible_layout_names_what_conflicts() {
    let mut problem = total_order(LayoutConstraint::Pull, LayoutConstraint::Pull);
    problem.devices[0].memory_bytes = Some(1000);
    let Err(LayoutError::Impossible(conflict)) = solve(&problem, || false) else {
        panic!("it has no layout");
    };
    let expected = [
        "Pull: `service` and `orderer` are on the same device",
        "Pull: `orderer` and `broadcast` are on the same device",
        "`service` can run on `host` (not on `nic`: it has no body for it)",
        "`broadcast` can run on `nic` (not on `host`: it has no body for it)",
    ];
    assert_eq!(conflict.words, expected);
    assert!(conflict.irreducible);
}

#[test]
fn what_is_no_problem_is_refused() {
    let mut problem = deployment();
    problem.channels[0].cost_ns_per_s[1].pop();
    let error = solve(&problem, || false).unwrap_err().to_string();
    assert_eq!(
        error,
        "the caller's table of channel `0 to 1` must have an entry for each of the 2 devices"
    );
    let mut problem = deployment();
    problem.constraints.push(LayoutConstraint::Pin(OffcodeIndex(7), HOST));
    assert!(matches!(solve(&problem, || false), Err(LayoutError::Problem(_))));
    let mut problem = deployment();
    problem.offcodes[1].name = "beta".to_owned();
    assert!(matches!(solve(&problem, || false), Err(LayoutError::Problem(_))));
    let mut problem = deployment();
    problem.channels[0].cost_ns_per_s[0][0] = u64::MAX;
    assert!(matches!(solve(&problem, || false), Err(LayoutError::Problem(_))));
}

#[test]
fn drawings_show_everything_and_escape_names() {
    let mut problem = deployment();
    problem.offcodes[1].name = "<script>&\"\u{1b}[31m\n".to_owned();
    problem.channels[0].cost_ns_per_s[0][1] = 12_345_678;
    let solution = solved(&problem);
    let text = draw_text(&problem, &solution.placement);
    let expected = "\
┌ host (host) ─┐
│ application  │
└──────────────┘
┌ nic (nic) ────────────────────────┐
│ <script>&\"\\u{1b}[31m\\u{a}          │
│ beta                              │
└───────────────────────────────────┘
";
    assert!(text.contains("application ═══ 0 to 1: 1.23 % CPU ═══ <script>"), "{text}");
    assert!(text.contains("─── 1 to 2: 0.00 % CPU ─── beta"), "{text}");
    assert_eq!(text.lines().count(), 9, "{text}");
    assert!(text.starts_with(expected.lines().next().unwrap_or("")), "{text}");
    assert!(!text.contains('\u{1b}'), "{text}");
    let svg = draw_svg(&problem, &solution.placement);
    assert!(svg.contains("&lt;script&gt;&amp;&quot;\\u{1b}[31m\\u{a}"), "{svg}");
    assert!(!svg.contains("<script>") && !svg.contains('\u{1b}'), "{svg}");
    assert_eq!(svg.matches("<path").count(), 2, "{svg}");
    assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
}
