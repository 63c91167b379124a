//! The simulation of active code: deterministic, without invented time, and with real effects.

use outboard_sim::active::costs::{Cores, Costs, Hardware, Prices};
use outboard_sim::active::list;
use outboard_sim::active::lock::Rivals;
use outboard_sim::active::node::{Call, SimulatedNode};
use outboard_sim::active::operation::word;
use outboard_sim::active::simulation::{Measured, Posted, closed_ns};
use outboard_sim::active::workload::{Side, Stage, Workload};

/// Costs of which no two are alike, so that none stands for another.
fn costs() -> Costs {
    Costs {
        send_ns: 1600.0,
        receive_ns: 900.0,
        byte_ns: 0.5,
        read_ns: 2100.0,
        write_ns: 1300.0,
        atomic_ns: 2300.0,
        execute_ns: 700.0,
        fuel_ns: 0.25,
        commit_ns: 310.0,
        line_ns: 43.0,
        verb_busy_ns: 800.0,
        messages_busy_ns: 1100.0,
    }
}

fn prices(hardware: Hardware) -> Prices {
    Prices { costs: costs(), hardware }
}

fn card(core_slowdown: f64, delay_ns: f64) -> Hardware {
    Hardware {
        cores: Cores::Apart,
        core_slowdown,
        delay_ns,
        bits_per_s: 10e9,
        ..Hardware::default()
    }
}

/// Each client does so many pieces of work on average.
const PIECES: usize = 40;

fn run(workload: Workload, side: Side, clients: usize, hardware: Hardware) -> Measured {
    Stage::new(workload).run(prices(hardware), (side, clients), clients * PIECES, 1)
}

/// Nanoseconds of rounding: one for each step.
const ROUNDING: f64 = 400.0;

fn check_closed(workload: Workload, side: Side, posts: &[Posted]) {
    let slow = Hardware { engine_speedup: 4.0, ..card(10.0, 50_000.0) };
    let mut stage = Stage::new(workload);
    for hardware in [Hardware::default(), card(3.0, 1000.0), slow] {
        let measured = stage.run(prices(hardware), (side, 1), PIECES, 1);
        let closed = closed_ns(&prices(hardware), posts);
        // Some keys are in a second bucket; whatever else happens happens always.
        let median = measured.median_ns() as f64;
        let apart = (median - closed).abs();
        assert!(apart < ROUNDING.min(closed / 100.0), "{workload:?}: {median} for {closed}");
        let alike = measured.took_ns.iter().filter(|took_ns| **took_ns == measured.median_ns());
        assert!(alike.count() * 10 > measured.took_ns.len() * 9, "{workload:?}");
    }
}

/// What an execution on a fresh stage uses: the last of some, so that the instance is there.
fn executed(workload: Workload, call: &Call) -> Posted {
    let mut stage = Stage::new(workload);
    let (result, used) = stage.node().execute(call, 0);
    let (args, result) = (call.args.len(), result.len());
    Posted::Execute { args, result, fuel: used.fuel, lines: used.lines }
}

#[test]
fn one_client_takes_what_the_closed_formula_says() {
    let hops = 17;
    let mut reads = vec![Posted::Read(64); 2 + 17];
    reads[0] = Posted::Read(8);
    check_closed(Workload::ListGet(hops), Side::Plain, &reads);
    let call = Call::new("list", "at", &[list::ROOT, hops], b"");
    check_closed(
        Workload::ListGet(hops),
        Side::Active,
        &[executed(Workload::ListGet(hops), &call)],
    );
    check_closed(Workload::HashGet(16), Side::Plain, &[Posted::Read(128)]);
}

#[test]
fn two_reads_take_as_long_as_two_reads() {
    let item = [Posted::Read(128), Posted::Read(16 * 6)];
    check_closed(Workload::HashGet(64), Side::Plain, &item);
    let put = [item[0], item[1], Posted::WriteCompareSwap(88)];
    // Of many puts, one in sixteen takes memory first.
    let mut stage = Stage::new(Workload::HashPut(64));
    for hardware in [Hardware::default(), card(1.0, 20_000.0)] {
        let measured = stage.run(prices(hardware), (Side::Plain, 1), 10 * PIECES, 5);
        let closed = closed_ns(&prices(hardware), &put);
        let median = measured.median_ns() as f64;
        assert!((median - closed).abs() < ROUNDING, "{median} for {closed}");
    }
}

#[test]
fn the_same_seed_gives_the_same_and_another_another() {
    let hardware = card(3.0, 2000.0);
    let mut stage = Stage::new(Workload::HashGet(64));
    let mut run = |seed| stage.run(prices(hardware), (Side::Plain, 12), 500, seed);
    assert_eq!(run(7), run(7));
    assert_ne!(run(7).took_ns, run(8).took_ns);
}

#[test]
fn both_sides_put_what_they_say_and_nothing_is_lost() {
    for side in [Side::Plain, Side::Active] {
        for clients in [1, 8] {
            let mut stage = Stage::new(Workload::ListPut(3));
            let (before, pieces) = (count(stage.node()), 60);
            let hardware = card(3.0, 1000.0);
            let measured = stage.run(prices(hardware), (side, clients), pieces, 1);
            // One more of each client may be under way.
            let found = count(stage.node()) - before;
            let under_way = pieces as u64..=(pieces + clients) as u64;
            assert!(under_way.contains(&found), "{side:?}, {clients} clients: {found}");
            assert_eq!(measured.took_ns.len(), pieces);
        }
    }
}

fn count(node: &mut SimulatedNode) -> u64 {
    word(&node.execute(&Call::new("list", "count", &[list::ROOT], b""), 0).0, 0)
}

#[test]
fn a_lock_has_one_owner_at_a_time_and_is_never_lost() {
    // The programs themselves check each grant and each release.
    for side in [Side::Plain, Side::Active] {
        for clients in [1, 2, 7] {
            let hardware = card(3.0, 1000.0);
            let measured = run(Workload::Lock(Rivals::Others), side, clients, hardware);
            assert_eq!(measured.took_ns.len(), clients * PIECES, "{side:?}");
            let is_contended = measured.round_trips > 3 * measured.took_ns.len() as u64;
            assert_eq!(is_contended, clients > 1, "{side:?}, {clients} clients");
        }
    }
    let refused = run(Workload::Lock(Rivals::Refused), Side::Active, 1, card(1.0, 1000.0));
    assert_eq!(refused.executions, 3 * PIECES as u64);
}

#[test]
fn a_slower_core_is_never_faster_and_does_not_slow_plain_verbs() {
    for workload in [Workload::ListGet(50), Workload::HashPut(64), Workload::TopK(1 << 14)] {
        let median = |side, slowdown| run(workload, side, 1, card(slowdown, 500.0)).median_ns();
        let active = [1.0, 3.0, 10.0].map(|slowdown| median(Side::Active, slowdown));
        assert!(active.is_sorted() && active[0] < active[2], "{workload:?}: {active:?}");
        let [plain, with_slow_core] = [1.0, 10.0].map(|slowdown| median(Side::Plain, slowdown));
        // A put takes memory by executions now and then.
        assert!(with_slow_core as f64 <= plain as f64 * 1.01, "{workload:?}: {plain}");
    }
}

#[test]
fn a_busy_core_executes_as_many_as_one_takes_of_its_time() {
    let workload = Workload::ListGet(200);
    let call = Call::new("list", "at", &[list::ROOT, 200], b"");
    let Posted::Execute { fuel, lines, args, result } = executed(workload, &call) else {
        panic!("an execution")
    };
    for slowdown in [1.0, 3.0, 10.0] {
        let apart = card(slowdown, 1000.0);
        let measured = run(workload, Side::Active, 40, apart);
        check_rate(&measured, prices(apart).execution(fuel, lines).busy_ns);
        let shared = Hardware { cores: Cores::Shared, ..apart };
        let prices = prices(shared);
        let all =
            prices.request(args).then(prices.execution(fuel, lines)).then(prices.answer(result));
        check_rate(&run(workload, Side::Active, 40, shared), all.busy_ns);
    }
}

#[test]
fn a_busy_engine_serves_as_many_reads_as_one_takes_of_its_time() {
    let hardware = card(1.0, 1000.0);
    let measured = run(Workload::HashGet(16), Side::Plain, 40, hardware);
    check_rate(&measured, prices(hardware).read(128).busy_ns);
}

fn check_rate(measured: &Measured, busy_ns: f64) {
    let (found, possible) = (measured.per_second(), 1e9 / busy_ns);
    assert!((found / possible - 1.0).abs() < 0.01, "{found} a second for {possible}");
    let within_ns = measured.within_ns() as f64;
    assert!(measured.busy_ns.iter().all(|busy_ns| *busy_ns <= within_ns * 1.001));
}

#[test]
fn a_link_carries_as_many_bytes_as_its_rate_says() {
    let hardware = Hardware { bits_per_s: 1e9, engine_speedup: 100.0, ..card(1.0, 1000.0) };
    let bytes = 1 << 16;
    let measured = run(Workload::TopK(bytes), Side::Plain, 8, hardware);
    let bits = measured.per_second() * (bytes * 8) as f64;
    assert!((0.98e9..=1e9).contains(&bits), "{bits} bits a second");
}
