//! `--exclude`: which entries of a source are left out.
//!
//! A pattern without `/` is compared with an entry's name at any depth; one with `/` with its whole
//! path, the source's own name first. `*` stands for any bytes but `/`, `**` for any bytes, `?` for
//! one byte that is not `/`, `[a-z]` for one of these and `[!a-z]` for one of the others; a
//! backslash makes the next byte mean itself. A pattern that ends in `/` is for directories only.
//! All beneath an excluded directory is left out with it. There is no way to include again what was
//! excluded.

/// Patterns, at most.
const PATTERNS_MAX: usize = 1000;
/// Bytes in a pattern, at most.
const PATTERN_LEN_MAX: usize = 1024;

/// Why a pattern is refused: the caller's fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExcludeError {
    /// The pattern is empty or too long.
    #[error("the pattern {pattern:?} has {len} bytes: 1 to {PATTERN_LEN_MAX} are allowed")]
    Length {
        /// The pattern as given.
        pattern: String,
        /// Its length.
        len: usize,
    },
    /// Too many patterns.
    #[error("more than {PATTERNS_MAX} patterns: name directories instead of their files")]
    TooMany,
}

/// One element of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Glob {
    Byte(u8),
    /// One byte that is not `/`.
    One,
    /// Any bytes but `/`.
    Some,
    /// Any bytes.
    Any,
    /// One of these bytes.
    Among(ByteSet),
}

/// A bit for each byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ByteSet([u128; 2]);

impl ByteSet {
    fn add(&mut self, byte: u8) {
        self.0[usize::from(byte >> 7)] |= 1 << (byte & 0x7f);
    }

    fn has(self, byte: u8) -> bool {
        self.0[usize::from(byte >> 7)] >> (byte & 0x7f) & 1 == 1
    }

    /// All others but `/`, which no set has.
    fn inverted(self) -> Self {
        let mut others = Self(self.0.map(|half| !half));
        others.remove_slash();
        others
    }

    fn remove_slash(&mut self) {
        self.0[0] &= !(1 << b'/');
    }
}

#[derive(Clone, Debug)]
struct ExcludePattern {
    globs: Vec<Glob>,
    has_slash: bool,
    is_for_directories: bool,
}

/// The patterns of a cast.
#[derive(Clone, Debug, Default)]
pub struct ExcludeRules {
    patterns: Vec<ExcludePattern>,
}

impl ExcludeRules {
    /// Adds a pattern.
    ///
    /// # Errors
    /// [`ExcludeError`].
    pub fn add(&mut self, pattern: &[u8]) -> Result<(), ExcludeError> {
        if self.patterns.len() >= PATTERNS_MAX {
            return Err(ExcludeError::TooMany);
        }
        let (body, is_for_directories) = match pattern {
            [body @ .., b'/'] => (body, true),
            body => (body, false),
        };
        if body.is_empty() || pattern.len() > PATTERN_LEN_MAX {
            let (pattern, len) = (String::from_utf8_lossy(pattern).into_owned(), pattern.len());
            return Err(ExcludeError::Length { pattern, len });
        }
        let globs = compile(body.strip_prefix(b"/").unwrap_or(body));
        let has_slash = body.contains(&b'/');
        self.patterns.push(ExcludePattern { globs, has_slash, is_for_directories });
        Ok(())
    }

    /// Whether an entry with this path is left out.
    pub(super) fn exclude(&self, path: &[u8], is_directory: bool) -> bool {
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
        self.patterns.iter().any(|pattern| {
            let text = if pattern.has_slash { path } else { name };
            (is_directory || !pattern.is_for_directories) && matches(&pattern.globs, text)
        })
    }
}

fn compile(pattern: &[u8]) -> Vec<Glob> {
    let mut globs = Vec::new();
    let mut rest = pattern;
    while let [first, after @ ..] = rest {
        let (glob, then) = match (first, after) {
            (b'\\', [byte, then @ ..]) => (Glob::Byte(*byte), then),
            (b'*', [b'*', then @ ..]) => (Glob::Any, then),
            (b'*', then) => (Glob::Some, then),
            (b'?', then) => (Glob::One, then),
            (b'[', then) => match byte_set(then) {
                Some((set, then)) => (Glob::Among(set), then),
                None => (Glob::Byte(b'['), then),
            },
            (byte, then) => (Glob::Byte(*byte), then),
        };
        globs.push(glob);
        rest = then;
    }
    globs
}

/// What stands between brackets, after the first of them, and what follows; `None` when they are
/// not closed. As in glob(7): `!` or `^` first inverts, `]` first is itself.
fn byte_set(pattern: &[u8]) -> Option<(ByteSet, &[u8])> {
    let (is_inverted, mut rest) = match pattern {
        [b'!' | b'^', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let mut set = ByteSet::default();
    let mut is_first = true;
    loop {
        let (from, then) = match rest {
            [b']', then @ ..] if !is_first => {
                set.remove_slash();
                return Some((if is_inverted { set.inverted() } else { set }, then));
            }
            [b'\\', byte, then @ ..] | [byte, then @ ..] => (*byte, then),
            [] => return None,
        };
        let (to, then) = match then {
            [b'-', b']', ..] => (from, then),
            [b'-', b'\\', byte, then @ ..] | [b'-', byte, then @ ..] => (*byte, then),
            then => (from, then),
        };
        (from..=to).for_each(|byte| set.add(byte));
        (rest, is_first) = (then, false);
    }
}

/// Whether all of `text` matches. Takes time in proportion to both lengths, whatever the pattern.
fn matches(globs: &[Glob], text: &[u8]) -> bool {
    // reached[i]: the globs so far match the first i bytes.
    let mut reached = vec![false; text.len() + 1];
    reached[0] = true;
    for glob in globs {
        step(*glob, text, &mut reached);
    }
    reached[text.len()]
}

fn step(glob: Glob, text: &[u8], reached: &mut [bool]) {
    if let Glob::Some | Glob::Any = glob {
        for (at, &byte) in text.iter().enumerate() {
            reached[at + 1] |= reached[at] && (glob == Glob::Any || byte != b'/');
        }
        return;
    }
    for (at, &byte) in text.iter().enumerate().rev() {
        let is_match = match glob {
            Glob::Byte(own) => byte == own,
            Glob::Among(set) => set.has(byte),
            Glob::One | Glob::Some | Glob::Any => byte != b'/',
        };
        reached[at + 1] = reached[at] && is_match;
    }
    reached[0] = false;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_follow_their_rules() {
        let table: [(&str, &str, bool); 32] = [
            ("*.o", "src/a/b.o", true),
            ("*.o", "src/a/b.oo", false),
            ("src/*.o", "src/b.o", true),
            ("src/*.o", "src/a/b.o", false),
            ("/src/b.o", "src/b.o", true),
            ("src/**.o", "src/a/b.o", true),
            ("**/a", "src/x/a", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("s?c", "s/c", false),
            ("a\\*c", "a*c", true),
            ("a\\*c", "abc", false),
            ("src/a", "src/a/b", false),
            (".git", "src/.git", true),
            ("*", "any", true),
            ("*.[oa]", "src/b.o", true),
            ("*.[oa]", "src/b.c", false),
            ("[a-c-]x", "src/bx", true),
            ("[a-c-]x", "src/-x", true),
            ("[a-c-]x", "src/dx", false),
            ("[!a-c]x", "src/dx", true),
            ("[^a-c]x", "src/bx", false),
            ("[]a]x", "src/]x", true),
            ("[\\]a]x", "src/]x", true),
            ("[a-]x", "src/-x", true),
            ("[c-a]x", "src/bx", false),
            ("s[!x]c", "s/c", false),
            ("src[/]a", "src/a", false),
            ("[a", "src/[a", true),
            ("[", "src/[", true),
            ("[\u{e9}]", "src/\u{e9}", false),
            ("*a*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
        ];
        for (pattern, path, expected) in table {
            let mut rules = ExcludeRules::default();
            rules.add(pattern.as_bytes()).expect("a pattern");
            assert_eq!(rules.exclude(path.as_bytes(), false), expected, "{pattern} on {path}");
        }
    }

    #[test]
    fn a_slash_at_the_end_is_for_directories() {
        let mut rules = ExcludeRules::default();
        rules.add(b"build/").expect("a pattern");
        assert!(rules.exclude(b"a/build", true));
        assert!(!rules.exclude(b"a/build", false));
        for pattern in [&b"/"[..], b"", &[b'a'; 1025]] {
            assert!(matches!(rules.add(pattern), Err(ExcludeError::Length { .. })));
        }
    }
}
