//! A cast's progress on a terminal: how many entries are found, then one line for all, and one for
//! each of some nodes, drawn over again. Draws nothing where standard error is no terminal.

use crate::quantity::{per_second, shown};
use outboard_cast::source::{CastProgress, NodeProgress, NodeStage, ProgressSender};
use std::env;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Lines for nodes, at most.
const NODE_LINES_MAX: usize = 12;
/// How often is drawn what is found, before there is progress.
const SCAN_EVERY: Duration = Duration::from_millis(250);
/// Columns of a node's bar.
const BAR: usize = 24;
/// Columns where the terminal does not tell.
const COLUMNS: usize = 80;

/// A thread that draws, until the cast drops the sender.
pub(super) struct ProgressDisplay {
    drawing: JoinHandle<()>,
}

impl ProgressDisplay {
    /// Starts to draw, if there is a terminal to draw on: the cast's progress, and before that how
    /// many entries are counted.
    pub(super) fn start(names: Vec<String>) -> Option<(ProgressSender, Arc<AtomicU64>, Self)> {
        let is_dumb = env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        if is_dumb || !io::stderr().is_terminal() {
            return None;
        }
        let (sender, progress) = sync_channel(1);
        let found = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&found);
        let draw = move || draw_all(&names, (&counted, &progress), &mut io::stderr());
        let drawing = thread::Builder::new().name("outboard-progress".into()).spawn(draw).ok()?;
        Some((sender, found, Self { drawing }))
    }

    /// Waits until what was drawn is gone.
    pub(super) fn end(self) {
        // It has nothing to say.
        let _ended = self.drawing.join();
    }
}

fn draw_all(
    names: &[String],
    (found, progress): (&AtomicU64, &Receiver<CastProgress>),
    terminal: &mut dyn Write,
) {
    let (began, mut drawn) = (Instant::now(), 0);
    let mut draw = |lines: &[String]| {
        let text = format!("{}{}\n", clear(drawn), lines.join("\n"));
        drawn = lines.len();
        // A terminal that has gone is not the cast's matter.
        let _drawn = terminal.write_all(text.as_bytes());
    };
    let mut next = progress.recv_timeout(SCAN_EVERY);
    while next == Err(RecvTimeoutError::Timeout) {
        let entries = found.load(Ordering::Relaxed);
        let seconds = began.elapsed().as_secs_f64();
        let line = format!("looks at what is to be cast: {entries} entries found  {seconds:.0} s");
        draw(&[short(&line, columns())]);
        next = progress.recv_timeout(SCAN_EVERY);
    }
    for now in next.into_iter().chain(progress) {
        draw(&lines(names, &now, columns()));
    }
    let _cleared = terminal.write_all(clear(drawn).as_bytes());
}

/// A line that is wrapped would count as one and take two.
fn short(line: &str, columns: usize) -> String {
    line.chars().take(columns.saturating_sub(1)).collect()
}

/// Back to the first of some lines, and all below gone.
fn clear(lines: usize) -> String {
    if lines == 0 { String::new() } else { format!("\x1b[{lines}A\r\x1b[J") }
}

fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stderr()).ok();
    size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0).unwrap_or(COLUMNS)
}

fn lines(names: &[String], progress: &CastProgress, columns: usize) -> Vec<String> {
    let mut lines = vec![summary(progress)];
    let mut nodes: Vec<(&String, &NodeProgress)> = names.iter().zip(&progress.nodes).collect();
    let more = nodes.len().saturating_sub(NODE_LINES_MAX);
    if more > 0 {
        // Those that are farthest behind, in the order of the list.
        nodes.sort_by_key(|(_, node)| (node.stage == NodeStage::Published, node.held_chunks));
        nodes.truncate(NODE_LINES_MAX);
    }
    lines.extend(nodes.into_iter().map(|(name, node)| row(name, node, progress)));
    if more > 0 {
        lines.push(format!("and {more} nodes that have as much or more"));
    }
    lines.iter().map(|line| short(line, columns)).collect()
}

fn summary(progress: &CastProgress) -> String {
    let (held, wanted) = (progress.held_bytes(), progress.wanted_bytes());
    let seconds = progress.elapsed.as_secs_f64();
    let mut line = format!(
        "{:>3} %  {} to {} nodes  {}/s in all  {seconds:.0} s",
        percent(held, wanted),
        shown(progress.stream_len),
        progress.nodes.len(),
        shown(per_second(held, seconds)),
    );
    let (checked, entries) = (progress.checked_entries, progress.entries);
    if (1..entries).contains(&checked) {
        line.push_str(&format!("  looks once more at what was cast, {checked} of {entries}"));
    }
    for (stage, word) in [(NodeStage::Published, "published"), (NodeStage::Failed, "failed")] {
        let count = progress.count(stage);
        if count > 0 {
            line.push_str(&format!("  {count} {word}"));
        }
    }
    line
}

fn row(name: &str, node: &NodeProgress, progress: &CastProgress) -> String {
    let (held, all) = (progress.bytes_of(node), progress.stream_len);
    let full = if all == 0 { 0 } else { u128::from(held) * BAR as u128 / u128::from(all) };
    let full = usize::try_from(full).unwrap_or(BAR).min(BAR);
    let (done, left) = ("#".repeat(full), "-".repeat(BAR - full));
    let steps = node.steps;
    let doing = match node.stage {
        NodeStage::Begins => "begins".to_owned(),
        NodeStage::Makes => format!("makes files, step {steps}"),
        NodeStage::Relays => String::new(),
        NodeStage::Receives => "passes nothing on".to_owned(),
        NodeStage::Publishes => format!("publishes, step {steps}"),
        NodeStage::Published => "published".to_owned(),
        NodeStage::Failed => "failed".to_owned(),
    };
    format!("{name:<16} {done}{left} {:>3} %  {doing}", percent(held, all)).trim_end().to_owned()
}

fn percent(part: u64, whole: u64) -> u64 {
    if whole == 0 {
        return 0;
    }
    u64::try_from(u128::from(part) * 100 / u128::from(whole)).unwrap_or(100)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn progress(nodes: Vec<NodeProgress>) -> CastProgress {
        let (elapsed, stream_len) = (Duration::from_secs(2), 8_000_000);
        let (checked_entries, entries) = (0, 4);
        CastProgress {
            elapsed,
            stream_len,
            chunks: 8,
            sent_chunks: 9,
            checked_entries,
            entries,
            nodes,
        }
    }

    #[test]
    fn a_cast_as_people_see_it() {
        let node = |stage, held_chunks| NodeProgress { stage, held_chunks, steps: 5 };
        let now = progress(vec![
            node(NodeStage::Relays, 4),
            node(NodeStage::Published, 8),
            node(NodeStage::Failed, 2),
        ]);
        let names = ["n1".to_owned(), "n2".to_owned(), "n3".to_owned()];
        assert_eq!(
            lines(&names, &now, 100).join("\n"),
            " 75 %  8.0 MB to 3 nodes  6.0 MB/s in all  2 s  1 published  1 failed\n\
             n1               ############------------  50 %\n\
             n2               ######################## 100 %  published\n\
             n3               ######------------------  25 %  failed"
        );
        let waits = CastProgress { checked_entries: 3, ..now.clone() };
        assert!(
            lines(&names, &waits, 100)[0].contains("  looks once more at what was cast, 3 of 4")
        );
        let makes = progress(vec![node(NodeStage::Makes, 1), node(NodeStage::Publishes, 8)]);
        let shown = lines(&names, &makes, 100);
        assert!(shown[1].ends_with(" 12 %  makes files, step 5"), "{shown:?}");
        assert!(shown[2].ends_with(" 100 %  publishes, step 5"), "{shown:?}");
        assert!(lines(&names, &now, 20).iter().all(|line| line.len() < 20));
    }

    #[test]
    fn what_is_found_is_counted_until_there_is_progress() {
        let (sender, receiver) = sync_channel(1);
        let found = AtomicU64::new(1234);
        let mut drawn = Vec::new();
        let drawing = thread::scope(|scope| {
            let (found, drawn) = (&found, &mut drawn);
            let drawing = scope.spawn(move || draw_all(&[], (found, &receiver), drawn));
            thread::sleep(3 * SCAN_EVERY);
            found.store(5678, Ordering::Relaxed);
            thread::sleep(3 * SCAN_EVERY);
            sender.send(progress(vec![])).expect("somebody draws");
            drop(sender);
            drawing.join()
        });
        assert!(drawing.is_ok());
        let drawn = String::from_utf8(drawn).expect("text");
        for entries in [1234, 5678] {
            let line = format!("looks at what is to be cast: {entries} entries found  ");
            assert!(drawn.contains(&line), "{drawn:?}");
        }
        assert!(drawn.contains("\x1b[1A\r\x1b[J  0 %  8.0 MB to 0 nodes"), "{drawn:?}");
        assert!(drawn.ends_with("\x1b[1A\r\x1b[J"), "{drawn:?}");
    }

    #[test]
    fn of_many_nodes_those_that_are_behind_are_shown() {
        let node = |held_chunks| NodeProgress { stage: NodeStage::Relays, held_chunks, steps: 0 };
        let now = progress((0..40).map(|at| node(if at == 30 { 0 } else { 5 })).collect());
        let names: Vec<String> = (0..40).map(|at| format!("n{at}")).collect();
        let lines = lines(&names, &now, 100);
        assert_eq!(lines.len(), NODE_LINES_MAX + 2);
        assert!(lines[1].starts_with("n30 "), "{}", lines[1]);
        assert_eq!(lines[NODE_LINES_MAX + 1], "and 28 nodes that have as much or more");
    }
}
