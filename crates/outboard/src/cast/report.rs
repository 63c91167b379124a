//! What is printed of a cast that has ended, as text and as JSON.

use outboard_cast::source::{CastOutcome, NodeOutcome};
use serde_json::json;

pub(super) fn print(outcome: &CastOutcome, failed: usize) {
    for node in &outcome.nodes {
        match &node.result {
            Ok(names) => println!("{}  {names} published", node.host),
            Err(why) => println!("{}  failed: {why}", node.host),
        }
    }
    println!(
        "{} bytes to {} of {} nodes in {:.2} s",
        outcome.stream_len,
        outcome.nodes.len() - failed,
        outcome.nodes.len(),
        outcome.took.as_secs_f64()
    );
}

pub(super) fn print_json(outcome: &CastOutcome) -> Result<(), serde_json::Error> {
    let node = |node: &NodeOutcome| match &node.result {
        Ok(names) => json!({ "host": node.host, "published": names }),
        Err(why) => json!({ "host": node.host, "failed": why }),
    };
    let report = json!({
        "bytes": outcome.stream_len,
        "sent_chunks": outcome.sent_chunks,
        "seconds": outcome.took.as_secs_f64(),
        "nodes": outcome.nodes.iter().map(node).collect::<Vec<_>>(),
    });
    println!("{}", serde_json::to_string_pretty(&report)?);
    Ok(())
}
