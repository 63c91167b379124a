//! What the line on a terminal says of a test.

use crate::status_line::StatusLine;
use outboard_perf::{Goal, Progress, Test};

/// Starts to draw how far a test is.
pub(super) fn start(test: Test, goal: Goal, done: &Progress) -> StatusLine {
    let done = done.clone();
    StatusLine::start(move || format!("{test}: {}", describe(goal, done.messages())))
}

fn describe(goal: Goal, messages: u64) -> String {
    match goal {
        _ if messages == 0 => "warming up".to_owned(),
        Goal::Messages(all) => format!("{messages} of {all} messages"),
        Goal::Time(time) => format!("{messages} messages; {time:?} in all"),
    }
}
