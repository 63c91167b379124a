//! grep's `-NUM`: digits among switches of one letter say how many lines of context there are,
//! which clap has no word for.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Switches whose value is the rest of the word, or the next word.
const VALUED: &[u8] = b"efmABC";
/// Options whose value may be the next word.
const VALUED_LONG: &[&str] = &[
    "--regexp",
    "--file",
    "--max-count",
    "--after-context",
    "--before-context",
    "--context",
    "--include",
    "--exclude",
    "--exclude-dir",
];

/// A command line of grep's with `-C NUM` for each `-NUM`.
pub(crate) fn with_contexts(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let (mut all, mut words) = (Vec::new(), words);
    while let Some(word) = words.next() {
        if word == "--" {
            all.push(word);
            break;
        }
        let takes_next = match word.as_bytes() {
            [b'-', b'-', ..] => VALUED_LONG.iter().any(|option| word == *option),
            [b'-', cluster @ ..] if !cluster.is_empty() => {
                let (number, rest, takes_next) = split(cluster);
                if !number.is_empty() {
                    all.push(OsString::from_vec([b"-C", number].concat()));
                }
                if rest.len() > 1 {
                    all.push(OsString::from_vec(rest));
                }
                all.extend(takes_next.then(|| words.next()).flatten());
                continue;
            }
            _ => false,
        };
        all.push(word);
        all.extend(takes_next.then(|| words.next()).flatten());
    }
    all.extend(words);
    all
}

/// The last number among switches, the word without numbers, and whether the next word is the last
/// switch's value.
fn split(cluster: &[u8]) -> (&[u8], Vec<u8>, bool) {
    let (mut number, mut rest) = (&cluster[..0], vec![b'-']);
    let mut at = 0;
    while let Some(byte) = cluster.get(at) {
        let digits = cluster[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits > 0 {
            number = &cluster[at..at + digits];
            at += digits;
            continue;
        }
        if VALUED.contains(byte) {
            rest.extend_from_slice(&cluster[at..]);
            return (number, rest, at + 1 == cluster.len());
        }
        rest.push(*byte);
        at += 1;
    }
    (number, rest, false)
}

/// A command line of the program's, if it is one of grep's.
pub(crate) fn of_program(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let words: Vec<OsString> = words.collect();
    let is_grep = words.get(1..3).is_some_and(|two| two == [OsStr::new("fs"), OsStr::new("grep")]);
    match is_grep {
        true => [&words[..3], &with_contexts(words[3..].iter().cloned())[..]].concat(),
        false => words,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_among_switches_are_contexts() {
        for (said, meant) in [
            ("-2 a", "-C2 a"),
            ("-n12i a", "-C12 -ni a"),
            ("-1n2 a", "-C2 -n a"),
            ("-2C3 a", "-C2 -C3 a"),
            ("-A2 -3 a", "-A2 -C3 a"),
            ("-nm1 a", "-nm1 a"),
            ("-nm 1 -5 a", "-nm 1 -C5 a"),
            ("-e -5 a", "-e -5 a"),
            ("--regexp -5 -- -7", "--regexp -5 -- -7"),
            ("--include=-5 - -1", "--include=-5 - -C1"),
            ("--include -5 -e", "--include -5 -e"),
        ] {
            let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
            assert_eq!(with_contexts(words(said).into_iter()), words(meant), "{said}");
            let whole = words(&format!("outboard fs grep {said}")).into_iter();
            assert_eq!(of_program(whole), words(&format!("outboard fs grep {meant}")), "{said}");
        }
        let other = ["outboard", "fs", "find", "-5"].map(OsString::from);
        assert_eq!(of_program(other.clone().into_iter()), other);
    }
}
