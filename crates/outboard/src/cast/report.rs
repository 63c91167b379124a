//! What is printed of a cast that has ended, as text and as JSON.

use crate::quantity::{per_second, shown};
use outboard_cast::source::{CastOutcome, NodeOutcome};
use outboard_cast::tree::SkippedFiles;
use serde_json::{Value, json};
use std::path::Path;

pub(super) fn lines(outcome: &CastOutcome) -> Vec<String> {
    let node = |node: &NodeOutcome| match &node.result {
        Ok(names) => {
            format!("{}  {names} published after {:.2} s", node.host, node.took.as_secs_f64())
        }
        Err(why) => format!("{}  failed: {}", node.host, text_on_one_line(why)),
    };
    let mut lines: Vec<String> = outcome.nodes.iter().map(node).collect();
    let published = outcome.nodes.iter().filter(|node| node.result.is_ok()).count();
    let seconds = outcome.took.as_secs_f64();
    let mut last = format!(
        "{} to {published} of {} nodes in {seconds:.2} s",
        shown(outcome.stream_len),
        outcome.nodes.len(),
    );
    if published > 0 {
        let rate = shown(per_second(outcome.stream_len, seconds));
        last.push_str(&format!(": {rate}/s to each, by schedule {}", outcome.kind));
    }
    lines.push(last);
    lines.extend(left_out(SKIPPED, &outcome.skipped));
    lines
}

/// Why what is neither file, directory nor link is left out.
pub(super) const SKIPPED: &str = "devices, sockets and pipes, which are not cast";

/// Lines that name what is left out, if anything is.
pub(super) fn left_out(why: &str, left_out: &SkippedFiles) -> Vec<String> {
    if left_out.count == 0 {
        return Vec::new();
    }
    let mut lines = vec![format!("left out, {} {why}:", left_out.count)];
    lines.extend(left_out.first.iter().map(|path| format!("  {}", on_one_line(path))));
    let more = left_out.count - left_out.first.len() as u64;
    if more > 0 {
        lines.push(format!("  and {more} more"));
    }
    lines
}

/// The same, as JSON.
pub(super) fn left_out_json(files: &SkippedFiles) -> Value {
    // Names may be any bytes, texts of JSON not.
    let first: Vec<_> = files.first.iter().map(|path| path.to_string_lossy()).collect();
    json!({ "count": files.count, "first": first })
}

/// What a node said, without what would disturb a terminal.
pub(crate) fn text_on_one_line(text: &str) -> String {
    const CHARACTERS_MAX: usize = 1000;
    let shown = text.chars().map(|one| if one.is_control() { '\u{fffd}' } else { one });
    shown.take(CHARACTERS_MAX).collect()
}

/// A path as it is, or escaped if it has what would disturb a terminal.
fn on_one_line(path: &Path) -> String {
    let text = path.to_string_lossy();
    if text.chars().any(char::is_control) { format!("{path:?}") } else { text.into_owned() }
}

pub(super) fn to_json(outcome: &CastOutcome) -> Value {
    let seconds = outcome.took.as_secs_f64();
    json!({
        "succeeded": outcome.has_succeeded(),
        "required_nodes": outcome.required,
        "bytes": outcome.stream_len,
        "chunks": outcome.chunks,
        "chunk_bytes": outcome.chunk_len.bytes(),
        "schedule": outcome.kind.to_string(),
        "sent_chunks": outcome.sent_chunks,
        "seconds": seconds,
        "bytes_per_second": per_second(outcome.stream_len, seconds),
        "skipped": left_out_json(&outcome.skipped),
        "nodes": outcome.nodes.iter().map(|n| node(n, outcome)).collect::<Vec<_>>(),
    })
}

fn node(node: &NodeOutcome, outcome: &CastOutcome) -> Value {
    let held = node.held_chunks.saturating_mul(u64::from(outcome.chunk_len.bytes()));
    let bytes = held.min(outcome.stream_len);
    let seconds = node.took.as_secs_f64();
    let mut value = json!({
        "host": node.host,
        "bytes": bytes,
        "read_chunks": node.read_chunks,
        "seconds": seconds,
        "bytes_per_second": per_second(bytes, seconds),
    });
    match &node.result {
        Ok(names) => value["published"] = (*names).into(),
        Err(why) => value["failed"] = why.as_str().into(),
    }
    value
}
