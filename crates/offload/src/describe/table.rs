//! Tables of TOML, read word by word: each word is of the right kind and known, or its line is
//! said.
//!
//! Never guesses: a word that a table does not have is a fault, with the nearest one that it has.

use super::fault::{LineIndex, TextFault};
use super::name::NameError;
use super::quantity::{parse_bytes, parse_time};
use std::str::FromStr;
use std::time::Duration;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Words may be this alike, from 0 to 1, to be taken for each other.
const LIKENESS_MIN: f64 = 0.7;

/// A value and its line.
#[derive(Debug)]
pub(super) struct Located<T> {
    pub(super) line: u32,
    pub(super) value: T,
}

impl<T> Located<T> {
    pub(super) fn fault(&self, message: impl Into<String>) -> TextFault {
        TextFault::new(self.line, message)
    }
}

impl Located<String> {
    /// The text as a name.
    pub(super) fn name<T: FromStr<Err = NameError>>(&self) -> Result<T, TextFault> {
        self.value.parse().map_err(|error: NameError| self.fault(error.to_string()))
    }

    /// What a word of a list stands for.
    pub(super) fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Result<T, TextFault> {
        let found = choices.iter().find(|(word, _)| *word == self.value);
        found.map(|(_, value)| *value).ok_or_else(|| {
            let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
            let hint = did_you_mean(&self.value, &words);
            self.fault(format!("{:?} is none of {}{hint}", self.value, words.join(", ")))
        })
    }
}

/// `; did you mean WORD?`, or nothing if no word is near.
pub(super) fn did_you_mean(found: &str, words: &[&str]) -> String {
    let likeness = |word: &&str| strsim::jaro_winkler(found, word);
    let nearest = words.iter().map(|word| (likeness(word), word));
    match nearest.max_by(|a, b| a.0.total_cmp(&b.0)) {
        Some((likeness, word)) if likeness >= LIKENESS_MIN => format!("; did you mean {word}?"),
        _ => String::new(),
    }
}

/// A table whose words are taken one after another.
#[derive(Debug)]
pub(super) struct TableReader<'t> {
    /// As it is written: `[[body]]`.
    what: String,
    pub(super) line: u32,
    entries: DeTable<'t>,
    lines: &'t LineIndex,
}

impl<'t> TableReader<'t> {
    /// The table that a whole text is.
    pub(super) fn document(
        text: &'t str,
        lines: &'t LineIndex,
        keys: &[&str],
    ) -> Result<Self, TextFault> {
        let document = DeTable::parse(text).map_err(|error| {
            let line = lines.line(error.span().map_or(0, |span| span.start));
            TextFault::new(line, error.message().trim().replace('\n', "; "))
        })?;
        let entries = document.into_inner();
        let reader = Self { what: "the file".into(), line: 1, entries, lines };
        reader.check_keys(keys)
    }

    /// Refuses a key that is none of these.
    fn check_keys(self, keys: &[&str]) -> Result<Self, TextFault> {
        let unknown = self.entries.keys().filter(|key| !keys.contains(&key.get_ref().as_ref()));
        // The first in the file, not in the alphabet.
        let Some(key) = unknown.min_by_key(|key| key.span().start) else {
            return Ok(self);
        };
        let hint = did_you_mean(key.get_ref(), keys);
        let line = self.lines.line(key.span().start);
        let known = if hint.is_empty() && !keys.is_empty() {
            format!("; its keys are {}", keys.join(", "))
        } else {
            hint
        };
        let message = format!("{} has no key {:?}{known}", self.what, key.get_ref());
        Err(TextFault::new(line, message))
    }

    /// A fault of the table as a whole.
    pub(super) fn fault(&self, message: impl Into<String>) -> TextFault {
        TextFault::new(self.line, message)
    }

    fn take(&mut self, key: &str) -> Option<Located<DeValue<'t>>> {
        let (key, value) = self.entries.remove_entry(key)?;
        Some(Located { line: self.lines.line(key.span().start), value: value.into_inner() })
    }

    /// The line of a key.
    pub(super) fn line_of(&self, key: &str) -> Option<u32> {
        let (key, _) = self.entries.get_key_value(key)?;
        Some(self.lines.line(key.span().start))
    }

    /// Refuses a key that is left: it is one of another kind of such tables.
    pub(super) fn finish(self, what: &str) -> Result<(), TextFault> {
        match self.entries.keys().min_by_key(|key| key.span().start) {
            None => Ok(()),
            Some(key) => {
                let line = self.lines.line(key.span().start);
                Err(TextFault::new(line, format!("{what} has no key {:?}", key.get_ref())))
            }
        }
    }

    /// All words that are left, of a table whose keys are the writer's own; each with a text.
    pub(super) fn into_texts(self) -> Result<Vec<(String, Located<String>)>, TextFault> {
        let Self { entries, lines, .. } = self;
        let mut texts = Vec::new();
        for (key, value) in entries {
            let line = lines.line(key.span().start);
            let name = key.into_inner().into_owned();
            texts.push((name.clone(), text(&name, Located { line, value: value.into_inner() })?));
        }
        Ok(texts)
    }

    pub(super) fn text(&mut self, key: &str) -> Result<Option<Located<String>>, TextFault> {
        self.take(key).map(|value| text(key, value)).transpose()
    }

    /// A text without which the table says nothing.
    pub(super) fn required(&mut self, key: &str) -> Result<Located<String>, TextFault> {
        let found = self.text(key)?;
        found.ok_or_else(|| self.fault(format!("{} lacks the key {key:?}", self.what)))
    }

    pub(super) fn flag(&mut self, key: &str) -> Result<Option<bool>, TextFault> {
        let flag = |value: Located<DeValue<'_>>| match value.value {
            DeValue::Boolean(flag) => Ok(flag),
            ref other => Err(value.fault(wrong_kind(key, other, "true or false"))),
        };
        self.take(key).map(flag).transpose()
    }

    /// A whole number in a range.
    pub(super) fn number(
        &mut self,
        key: &str,
        range: std::ops::RangeInclusive<u32>,
    ) -> Result<Option<u32>, TextFault> {
        self.take(key).map(|value| number(key, value, range)).transpose()
    }

    /// A priority: higher ones come first.
    pub(super) fn priority(&mut self, key: &str) -> Result<Option<u8>, TextFault> {
        let number = self.number(key, 0..=u32::from(u8::MAX))?;
        Ok(number.and_then(|number| u8::try_from(number).ok()))
    }

    /// A number of bytes: a number, or text with a suffix.
    pub(super) fn bytes(&mut self, key: &str) -> Result<Option<Located<u64>>, TextFault> {
        const EXPECTED: &str = "a number of bytes such as \"1MiB\", \"64K\" or 4096";
        let bytes = |Located { line, value }: Located<DeValue<'_>>| {
            let found = match &value {
                DeValue::String(text) => parse_bytes(text),
                DeValue::Integer(number) => u64_of(number),
                _ => None,
            };
            found
                .map(|value| Located { line, value })
                .ok_or_else(|| TextFault::new(line, wrong_kind(key, &value, EXPECTED)))
        };
        self.take(key).map(bytes).transpose()
    }

    /// A list of texts, or one text alone; empty if it is not there.
    pub(super) fn texts(
        &mut self,
        key: &str,
        len_max: usize,
    ) -> Result<Vec<Located<String>>, TextFault> {
        self.list(key, len_max, "a list of texts", text)
    }

    /// A list of whole numbers, or one alone.
    pub(super) fn numbers(&mut self, key: &str, len_max: usize) -> Result<Vec<u32>, TextFault> {
        let each = |key: &str, value: Located<DeValue<'t>>| number(key, value, 0..=u32::MAX);
        self.list(key, len_max, "a list of numbers", each)
    }

    fn list<T>(
        &mut self,
        key: &str,
        len_max: usize,
        expected: &str,
        each: impl Fn(&str, Located<DeValue<'t>>) -> Result<T, TextFault>,
    ) -> Result<Vec<T>, TextFault> {
        let Some(Located { line, value }) = self.take(key) else {
            return Ok(Vec::new());
        };
        match value {
            DeValue::Array(items) => {
                check_len(key, line, items.len(), len_max)?;
                let lines = self.lines;
                items.into_iter().map(|item| each(key, located(lines, item))).collect()
            }
            DeValue::Table(_) => Err(TextFault::new(line, wrong_kind(key, &value, expected))),
            value => Ok(vec![each(key, Located { line, value })?]),
        }
    }

    /// A table with these keys.
    pub(super) fn table(&mut self, key: &str, keys: &[&str]) -> Result<Option<Self>, TextFault> {
        self.any_table(key)?.map(|table| table.check_keys(keys)).transpose()
    }

    /// A table whose keys are the writer's own.
    pub(super) fn any_table(&mut self, key: &str) -> Result<Option<Self>, TextFault> {
        let what = format!("[{key}]");
        let lines = self.lines;
        let table = |Located { line, value }| match value {
            DeValue::Table(entries) => Ok(Self { what, line, entries, lines }),
            other => Err(TextFault::new(line, wrong_kind(key, &other, &format!("a table {what}")))),
        };
        self.take(key).map(table).transpose()
    }

    /// Tables `[[key]]` with these keys.
    pub(super) fn tables(
        &mut self,
        key: &str,
        keys: &[&str],
        len_max: usize,
    ) -> Result<Vec<Self>, TextFault> {
        let what = format!("[[{key}]]");
        let expected = format!("tables that each begin with {what}");
        let Some(Located { line, value }) = self.take(key) else {
            return Ok(Vec::new());
        };
        let DeValue::Array(items) = value else {
            return Err(TextFault::new(line, wrong_kind(key, &value, &expected)));
        };
        check_len(key, line, items.len(), len_max)?;
        let lines = self.lines;
        let table = |item| match located(lines, item) {
            Located { line, value: DeValue::Table(entries) } => {
                Self { what: what.clone(), line, entries, lines }.check_keys(keys)
            }
            other => Err(other.fault(wrong_kind(key, &other.value, &expected))),
        };
        items.into_iter().map(table).collect()
    }
}

impl Located<String> {
    /// A time with its unit.
    pub(super) fn time(&self) -> Result<Duration, TextFault> {
        parse_time(&self.value).ok_or_else(|| {
            self.fault(format!("{:?} is no time: write such as 500ms, 10s or 2min", self.value))
        })
    }
}

fn located<'t>(lines: &LineIndex, item: Spanned<DeValue<'t>>) -> Located<DeValue<'t>> {
    Located { line: lines.line(item.span().start), value: item.into_inner() }
}

fn check_len(key: &str, line: u32, len: usize, len_max: usize) -> Result<(), TextFault> {
    match len <= len_max {
        true => Ok(()),
        false => Err(TextFault::new(line, format!("{len} of {key:?}: at most {len_max} may be"))),
    }
}

fn text(
    key: &str,
    Located { line, value }: Located<DeValue<'_>>,
) -> Result<Located<String>, TextFault> {
    match value {
        DeValue::String(text) => Ok(Located { line, value: text.into_owned() }),
        other => Err(TextFault::new(line, wrong_kind(key, &other, "text in quotes"))),
    }
}

fn number(
    key: &str,
    Located { line, value }: Located<DeValue<'_>>,
    range: std::ops::RangeInclusive<u32>,
) -> Result<u32, TextFault> {
    let found = match &value {
        DeValue::Integer(number) => u64_of(number).and_then(|number| u32::try_from(number).ok()),
        _ => None,
    };
    found.filter(|number| range.contains(number)).ok_or_else(|| {
        let expected = format!("a whole number from {} to {}", range.start(), range.end());
        TextFault::new(line, wrong_kind(key, &value, &expected))
    })
}

fn u64_of(number: &toml::de::DeInteger<'_>) -> Option<u64> {
    u64::from_str_radix(number.as_str(), number.radix()).ok()
}

/// Says what was found and what is expected.
fn wrong_kind(key: &str, found: &DeValue<'_>, expected: &str) -> String {
    let shown = match found {
        DeValue::String(text) => format!("{:?}", text.chars().take(64).collect::<String>()),
        DeValue::Integer(number) => number.as_str().to_owned(),
        other => format!("of the kind {}", other.type_str()),
    };
    format!("{key:?} is {shown}: write {expected}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_offered() {
        let words = ["memory", "clock", "timers"];
        assert_eq!(did_you_mean("memry", &words), "; did you mean memory?");
        assert_eq!(did_you_mean("Timer", &words), "; did you mean timers?");
        assert_eq!(did_you_mean("xyz", &words), "");
    }

    #[test]
    fn tables_know_their_lines() {
        let text = "a = 1\n\n[[body]]\nkind = 'x'\n[[body]]\n\n[needs]\n";
        let lines = LineIndex::new(text);
        let mut reader =
            TableReader::document(text, &lines, &["a", "body", "needs"]).expect("valid");
        let bodies = reader.tables("body", &["kind"], 9).expect("tables");
        let at: Vec<u32> = bodies.iter().map(|body| body.line).collect();
        let needs = reader.table("needs", &[]).expect("a table").expect("there");
        assert_eq!((at, needs.line), (vec![3, 5], 7));
    }
}
