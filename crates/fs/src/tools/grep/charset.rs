//! Sets of characters, as bracket expressions and classes of POSIX name them.
//!
//! In the C locale characters are bytes, the numbers below 256.

use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange, HirKind};

/// Characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CharSet {
    pub(super) class: ClassUnicode,
    /// Which characters beyond ASCII are in it takes large tables: an automaton leaves lines with
    /// such characters to others.
    pub(super) is_large: bool,
}

/// What is a character, and which are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CharRules {
    pub(super) is_utf8: bool,
    /// Letters' cases are the same.
    pub(super) folds: bool,
}

const LAST_ASCII: char = '\u{7f}';
const FIRST_BEYOND: char = '\u{80}';

/// Names, and what they stand for.
type ClassTable = &'static [(&'static str, &'static [(char, char)], &'static str)];

/// Ranges of ASCII, and what Unicode adds to them.
const CLASSES: ClassTable = &[
    ("alnum", &[('0', '9'), ('A', 'Z'), ('a', 'z')], r"[\p{Alphabetic}\p{Nd}]"),
    ("alpha", &[('A', 'Z'), ('a', 'z')], r"[\p{Alphabetic}\p{Nd}]"),
    ("blank", &[('\t', '\t'), (' ', ' ')], r"[\p{Zs}--[\u{a0}\u{2007}\u{202f}]]"),
    ("cntrl", &[('\0', '\x1f'), ('\x7f', '\x7f')], r"[\p{Cc}\u{2028}\u{2029}]"),
    ("digit", &[('0', '9')], ""),
    ("graph", &[('!', '~')], r"[^\p{Cc}\p{Cn}\p{White_Space}]"),
    ("lower", &[('a', 'z')], r"\p{Lowercase}"),
    ("print", &[(' ', '~')], r"[^\p{Cc}\p{Cn}\u{2028}\u{2029}]"),
    (
        "punct",
        &[('!', '/'), (':', '@'), ('[', '`'), ('{', '~')],
        r"[^\p{Cc}\p{Cn}\p{White_Space}\p{Alphabetic}\p{Nd}]",
    ),
    ("space", &[('\t', '\r'), (' ', ' ')], r"[\p{White_Space}--[\u{85}\u{a0}\u{2007}\u{202f}]]"),
    ("upper", &[('A', 'Z')], r"\p{Uppercase}"),
    ("xdigit", &[('0', '9'), ('A', 'F'), ('a', 'f')], ""),
];

impl CharSet {
    pub(super) fn empty() -> Self {
        Self { class: ClassUnicode::empty(), is_large: false }
    }

    pub(super) fn one(c: char, rules: CharRules) -> Self {
        Self::range(c, c, rules)
    }

    pub(super) fn range(first: char, last: char, rules: CharRules) -> Self {
        let mut set = Self::empty();
        set.add(first, last);
        set.fold(rules);
        set
    }

    pub(super) fn add(&mut self, first: char, last: char) {
        self.class.push(ClassUnicodeRange::new(first, last));
    }

    pub(super) fn union(&mut self, other: &Self) {
        self.class.union(&other.class);
        self.is_large |= other.is_large;
    }

    /// A class by its POSIX name; `None`: there is none.
    pub(super) fn named(name: &str, rules: CharRules) -> Option<Self> {
        let folded = rules.folds && matches!(name, "upper" | "lower");
        let name = if folded { "alpha" } else { name };
        let (_, ranges, beyond) = CLASSES.iter().find(|(known, ..)| *known == name)?;
        let mut set = Self::empty();
        ranges.iter().for_each(|(first, last)| set.add(*first, *last));
        if rules.is_utf8 && !beyond.is_empty() {
            set.class.union(&beyond_ascii(beyond));
            set.is_large = true;
        }
        // No line has one.
        set.class.difference(&ClassUnicode::new([ClassUnicodeRange::new('\n', '\n')]));
        Some(set)
    }

    /// What words consist of.
    pub(super) fn word(rules: CharRules) -> Self {
        let mut set = Self::named("alnum", rules).unwrap_or_else(Self::empty);
        set.add('_', '_');
        set
    }

    /// All characters but line ends.
    pub(super) fn any(rules: CharRules) -> Self {
        let mut set = Self::empty();
        set.negate(rules);
        set
    }

    /// All others, but line ends.
    pub(super) fn negate(&mut self, rules: CharRules) {
        self.add('\n', '\n');
        self.class.negate();
        if !rules.is_utf8 {
            self.class.intersect(&ClassUnicode::new([ClassUnicodeRange::new('\0', '\u{ff}')]));
        }
    }

    /// Adds the other cases of its letters.
    pub(super) fn fold(&mut self, rules: CharRules) {
        if !rules.folds {
            return;
        }
        if rules.is_utf8 {
            // Its tables are there.
            let _folded = self.class.try_case_fold_simple();
            return;
        }
        let mut ascii = self.class.clone();
        ascii.intersect(&ClassUnicode::new([ClassUnicodeRange::new('\0', LAST_ASCII)]));
        let _folded = ascii.try_case_fold_simple();
        ascii.intersect(&ClassUnicode::new([ClassUnicodeRange::new('\0', LAST_ASCII)]));
        self.class.union(&ascii);
    }

    /// What of it is ASCII.
    pub(super) fn ascii(&self) -> ClassUnicode {
        let mut class = self.class.clone();
        class.intersect(&ClassUnicode::new([ClassUnicodeRange::new('\0', LAST_ASCII)]));
        class
    }

    pub(super) fn has(&self, c: char) -> bool {
        self.class.ranges().iter().any(|range| (range.start()..=range.end()).contains(&c))
    }

    /// Its only character, or the two cases of its only letter.
    pub(super) fn single(&self) -> Option<char> {
        let ranges = self.class.ranges();
        let one = |range: &ClassUnicodeRange| (range.start() == range.end()).then(|| range.start());
        match ranges {
            [only] => one(only),
            [upper, lower] => {
                let (upper, lower) = (one(upper)?, one(lower)?);
                let is_pair = upper.is_ascii_uppercase() && upper.to_ascii_lowercase() == lower;
                is_pair.then_some(lower)
            }
            _ => None,
        }
    }
}

fn beyond_ascii(pattern: &str) -> ClassUnicode {
    let parsed = regex_syntax::parse(pattern).map(regex_syntax::hir::Hir::into_kind);
    let mut class = match parsed {
        Ok(HirKind::Class(regex_syntax::hir::Class::Unicode(class))) => class,
        _ => ClassUnicode::empty(),
    };
    class.intersect(&ClassUnicode::new([ClassUnicodeRange::new(FIRST_BEYOND, char::MAX)]));
    class
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_its_characters() {
        let rules = CharRules { is_utf8: true, folds: false };
        for (name, _, beyond) in CLASSES {
            let set = CharSet::named(name, rules).expect("known");
            assert_eq!(set.class.ranges().last().expect("some").end() > LAST_ASCII, set.is_large);
            assert_eq!(set.is_large, !beyond.is_empty(), "{name}");
        }
        assert!(CharSet::named("alpha", rules).expect("known").has('é'));
        assert_eq!(CharSet::named("letters", rules), None);
    }

    #[test]
    fn cases_are_the_same_where_that_is_wanted() {
        let rules = CharRules { is_utf8: false, folds: true };
        assert_eq!(CharSet::one('B', rules).single(), Some('b'));
        let k = CharSet::one('k', CharRules { is_utf8: true, folds: true });
        assert!(k.has('K') && k.has('\u{212a}') && k.single().is_none(), "kelvins are k");
        assert!(!CharSet::any(rules).has('\n') && CharSet::any(rules).has('\u{ff}'));
    }
}
