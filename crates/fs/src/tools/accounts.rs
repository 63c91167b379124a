//! Numbers of users and groups, by the files of this machine.

use std::fs;

/// A user's number.
pub(super) fn user(word: &str) -> Option<u32> {
    find("/etc/passwd", word)
}

/// A group's number.
pub(super) fn group(word: &str) -> Option<u32> {
    find("/etc/group", word)
}

/// A name comes before a number of the same digits.
fn find(file: &str, word: &str) -> Option<u32> {
    let table = fs::read_to_string(file).unwrap_or_default();
    of_table(&table, word).or_else(|| word.parse().ok())
}

fn of_table(table: &str, word: &str) -> Option<u32> {
    table.lines().find_map(|line| {
        let mut members = line.split(':');
        let is_it = members.next() == Some(word);
        members.nth(1).filter(|_| is_it)?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_a_table() {
        let table = "root:x:0:0:root:/root:/bin/sh\nbroken\nmail:x:8:8::/:/bin/false\n";
        assert_eq!(of_table(table, "mail"), Some(8));
        assert_eq!(of_table(table, "x"), None);
        assert_eq!(of_table(table, "broken"), None);
        assert_eq!(
            (user("root"), user("12345678"), user("nobody-is-called-so")),
            (Some(0), Some(12_345_678), None)
        );
    }
}
