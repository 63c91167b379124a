//! What is wrong with servers, into the manager's log: its standard error.
//!
//! Servers are tried again and again; what was said of one last is not said twice.

use std::collections::HashMap;

/// Octets of one complaint. A peer may have worded it.
const WORDS_MAX: usize = 400;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Complaints {
    last: HashMap<String, String>,
    latest: String,
}

impl Complaints {
    /// Something is wrong with a server. The first words of a message tell what.
    pub(crate) fn of(&mut self, host: &str, why: &str) {
        if let Some(line) = self.worth_saying(host, why) {
            eprintln!("outboard: {line}");
            self.latest = line;
        }
    }

    /// What was said last; nothing if nothing was.
    pub(crate) fn latest(&self) -> &str {
        &self.latest
    }

    fn worth_saying(&mut self, host: &str, why: &str) -> Option<String> {
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
    fn what_was_said_last_is_not_said_twice() {
        let mut complaints = Complaints::default();
        assert_eq!(complaints.worth_saying("n1", "refused").as_deref(), Some("n1: refused"));
        assert_eq!(complaints.worth_saying("n1", "refused"), None);
        assert_eq!(complaints.worth_saying("n2", "n2 is down").as_deref(), Some("n2 is down"));
        assert!(complaints.worth_saying("n1", "lost: it says nothing").is_some());
        assert!(complaints.worth_saying("n1", "refused").is_some());
    }

    #[test]
    fn a_peers_words_cannot_write_lines_or_much() {
        let mut complaints = Complaints::default();
        let line = complaints.worth_saying("n", &"a\nb\x1b[2J".repeat(1000)).expect("news");
        assert!(!line.contains(['\n', '\x1b']) && line.len() <= WORDS_MAX + 3);
    }
}
