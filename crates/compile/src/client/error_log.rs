//! Logs errors of servers, as `tracing` events of the manager's.
//!
//! The client tries servers again and again; an error equal to a server's last one is not repeated.

use std::collections::HashMap;

/// Characters of one error, at most: its text may come from a peer.
const WORDS_MAX: usize = 400;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct ErrorLog {
    last: HashMap<String, String>,
    latest: String,
}

impl ErrorLog {
    /// Logs an error of a server, unless it equals the server's last one.
    pub(crate) fn of(&mut self, host: &str, why: &str) {
        if let Some(line) = self.new_line(host, why) {
            tracing::warn!("{line}");
            self.latest = line;
        }
    }

    /// The last line that was logged; empty without one.
    pub(crate) fn latest(&self) -> &str {
        &self.latest
    }

    fn new_line(&mut self, host: &str, why: &str) -> Option<String> {
        let known = self.last.insert(host.to_owned(), why.to_owned());
        let is_news = known.is_none_or(|known| known != why);
        let why: String = why.chars().filter(|sign| !sign.is_control()).take(WORDS_MAX).collect();
        is_news.then(|| if why.contains(host) { why.clone() } else { format!("{host}: {why}") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_error_is_logged_once() {
        let mut errors = ErrorLog::default();
        assert_eq!(errors.new_line("n1", "refused").as_deref(), Some("n1: refused"));
        assert_eq!(errors.new_line("n1", "refused"), None);
        assert_eq!(errors.new_line("n2", "n2 is down").as_deref(), Some("n2 is down"));
        assert!(errors.new_line("n1", "lost: it sent nothing for too long").is_some());
        assert!(errors.new_line("n1", "refused").is_some());
    }

    #[test]
    fn text_of_a_peer_adds_no_lines_and_is_cut() {
        let mut errors = ErrorLog::default();
        let line = errors.new_line("n", &"a\nb\x1b[2J".repeat(1000)).expect("news");
        assert!(!line.contains(['\n', '\x1b']) && line.len() <= WORDS_MAX + 3);
    }
}
