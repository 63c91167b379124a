//! A node that itself does not run for a while, by a clock that the test moves.

use super::joined;
use super::stage::Stage;
use crate::protocol::CastMessage;
use std::time::{Duration, Instant};

pub(super) const STEP: Duration = Duration::from_millis(100);
const PAUSE: Duration = Duration::from_secs(10);

/// Turns the node's loop in steps of time. How long it took until `is_so`, and the time then.
pub(super) fn run_until(
    stage: &mut Stage,
    began: Instant,
    is_so: impl Fn(&Stage) -> bool,
) -> (Duration, Instant) {
    let mut now = began;
    while !is_so(stage) {
        assert!(now < began + Duration::from_secs(100), "never: {}", stage.node.report());
        now += STEP;
        stage.node.turn(now).expect("a turn");
    }
    (now - began, now)
}

fn ended_for(stage: &Stage) -> String {
    stage.node.report()["latest_end"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_pause_of_a_node_is_no_silence_of_its_source() {
    let is_over = |stage: &Stage| ended_for(stage).contains("its source has said nothing");
    let mut stage = Stage::new();
    stage.begin();
    let (usual, _) = run_until(&mut stage, Instant::now(), is_over);
    let mut stage = Stage::new();
    stage.begin();
    let (_, now) = run_until(&mut stage, Instant::now() + PAUSE, |_| true);
    stage.node.turn(now).expect("a turn");
    assert_eq!(stage.node.report()["casts_now"], 1, "{}", ended_for(&stage));
    // The wait that the pause was in has counted.
    let (took, _) = run_until(&mut stage, now, is_over);
    assert!(took <= usual && took + Duration::from_secs(1) > usual, "{took:?}, not {usual:?}");
}

#[test]
fn a_pause_of_a_node_is_no_silence_of_its_neighbours() {
    let (mut stage, ..) = joined();
    stage.hub.dismiss(stage.peer);
    let is_held = |said: &CastMessage| matches!(said, CastMessage::Held(_));
    stage.until(|stage| stage.others.iter().any(|(_, said)| is_held(said)));
    let now = Instant::now() + PAUSE;
    stage.node.turn(now).expect("a turn");
    assert_eq!(stage.node.report()["sessions_now"], 1, "{}", ended_for(&stage));
    let is_over = |stage: &Stage| ended_for(stage).contains("since the source left: it hangs");
    let (took, _) = run_until(&mut stage, now, is_over);
    assert!(took > Duration::from_secs(2) && took < Duration::from_secs(4), "{took:?}");
}
