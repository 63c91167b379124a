//! How long would a cast take? Compares schedules by the step model, for clusters that need not
//! exist.
//!
//! `cargo run -p outboard-cast --example compare_schedules -- 1000 10000000000 25`: nodes, bytes,
//! Gbit/s.

use outboard_cast::schedule::{LinkModel, PlanRequest, ScheduleKind};
use std::num::NonZeroU32;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [nodes, bytes, gigabits] = words.as_slice() else {
        return Err("give the number of nodes, of bytes, and Gbit/s".into());
    };
    let request = PlanRequest {
        // The source is one of the nodes of a schedule.
        nodes: nodes.parse::<u32>()?.saturating_add(1),
        bytes: bytes.parse()?,
        chunk_bytes: const { NonZeroU32::new(1 << 20).unwrap() },
        link: LinkModel::gigabits(gigabits.parse()?),
        switches: Vec::new(),
    };
    for plan in request.plans()? {
        println!("{plan}");
    }
    println!("a cast would take {}", ScheduleKind::for_cast(&request)?);
    Ok(())
}
