//! From text to hosts; the grammar stands in the module above.
//!
//! Every error carries the range of bytes that is wrong. The number of resulting names is checked
//! before any range is expanded.

use super::{HOSTS_MAX, Host, Problem, SLOTS_MAX};
use std::net::Ipv6Addr;
use std::num::NonZeroU32;
use std::ops::Range;

/// Characters of a name in DNS.
const NAME_MAX: usize = 253;

/// Digits of a number in a group, at most: it fits an `u64`.
const DIGITS_MAX: usize = 18;

/// A host and the bytes of the text that name it.
pub(super) struct HostEntry {
    pub(super) host: Host,
    pub(super) at: Range<usize>,
}

/// What is wrong with some bytes of the text.
#[derive(Debug)]
pub(super) struct ParseFault {
    pub(super) problem: Problem,
    pub(super) at: Range<usize>,
}

type Parsed<T> = Result<T, ParseFault>;

/// A part of the text, with its position.
#[derive(Clone, Copy)]
struct Span<'a> {
    text: &'a str,
    start: usize,
}

impl<'a> Span<'a> {
    fn at(self) -> Range<usize> {
        self.start..self.start + self.text.len()
    }

    fn fault(self, problem: Problem) -> ParseFault {
        ParseFault { problem, at: self.at() }
    }

    /// The parts before and after a byte offset.
    fn split_at(self, index: usize) -> (Self, Self) {
        let (before, behind) = self.text.split_at(index);
        (Self { text: before, ..self }, Self { text: behind, start: self.start + index })
    }

    /// Some bytes of it, between places at which the text may be cut.
    fn part(self, bytes: Range<usize>) -> Self {
        Self { text: &self.text[bytes.clone()], start: self.start + bytes.start }
    }

    /// What stands before such a place, and from there on if there is one.
    fn cut(self, index: Option<usize>) -> (Self, Option<Self>) {
        let Some(index) = index else { return (self, None) };
        let (before, behind) = self.split_at(index);
        (before, Some(behind))
    }

    /// Without its first byte, which is one character.
    fn behind_first(self) -> Self {
        self.split_at(self.text.len().min(1)).1
    }

    /// The parts between such ASCII characters.
    fn split(self, separator: char) -> impl Iterator<Item = Self> + 'a {
        let mut rest = Some(self);
        std::iter::from_fn(move || {
            let (before, behind) = rest?.cut(rest?.text.find(separator));
            rest = behind.map(Self::behind_first);
            Some(before)
        })
    }
}

/// The hosts that a text names, in order, equal ones not yet merged.
pub(super) fn entries(text: &str) -> Parsed<Vec<HostEntry>> {
    let mut entries = Vec::new();
    let mut rest = Span { text, start: 0 };
    let mut comma: Option<Span<'_>> = None;
    while let Some(token) = next_token(&mut rest)? {
        match (token, comma) {
            (Token::Host(span), _) => {
                append_hosts(span, &mut entries)?;
                comma = None;
            }
            (Token::Comma(span), None) if !entries.is_empty() => comma = Some(span),
            (Token::Comma(span), _) => return Err(span.fault(Problem::NoHost)),
        }
    }
    comma.map_or(Ok(entries), |span| Err(span.fault(Problem::NoHost)))
}

enum Token<'a> {
    Host(Span<'a>),
    Comma(Span<'a>),
}

/// Cuts the next host or comma off; comments and blanks are passed over.
fn next_token<'a>(rest: &mut Span<'a>) -> Parsed<Option<Token<'a>>> {
    while let Some(first) = rest.text.chars().next() {
        let blank = first.is_whitespace();
        let len = match first {
            '#' => rest.text.find('\n').unwrap_or(rest.text.len()),
            ',' => 1,
            _ if blank => first.len_utf8(),
            _ => host_len(*rest)?,
        };
        let (span, behind) = rest.split_at(len);
        *rest = behind;
        match first {
            ',' => return Ok(Some(Token::Comma(span))),
            '#' => {}
            _ if blank => {}
            _ => return Ok(Some(Token::Host(span))),
        }
    }
    Ok(None)
}

/// Bytes of the host that begins `rest`; commas in its brackets belong to it.
fn host_len(rest: Span<'_>) -> Parsed<usize> {
    let mut open = None;
    let unpaired = |from, to| Err(rest.part(from..to).fault(Problem::Bracket));
    for (index, character) in rest.text.char_indices() {
        match (character, open) {
            ('[', None) => open = Some(index),
            (']', Some(_)) => open = None,
            ('[' | '\n' | '#', Some(start)) => return unpaired(start, index),
            (']', None) => return unpaired(index, index + 1),
            (',' | '#', None) => return Ok(index),
            (blank, None) if blank.is_whitespace() => return Ok(index),
            _ => {}
        }
    }
    match open {
        Some(start) => unpaired(start, rest.text.len()),
        None => Ok(rest.text.len()),
    }
}

/// Appends the hosts that one word names.
fn append_hosts(word: Span<'_>, entries: &mut Vec<HostEntry>) -> Parsed<()> {
    let (name, port, slots) = parts(word)?;
    let port = port.map(parse_port).transpose()?;
    let slots = slots.map(parse_slots).transpose()?;
    let names = match address(name) {
        Some(address) => vec![parse_address(address)?],
        None => expand(name, HOSTS_MAX - entries.len())?,
    };
    entries.extend(names.into_iter().map(|name| {
        let host = Host { name: name.into_boxed_str(), port, slots };
        HostEntry { host, at: word.at() }
    }));
    if entries.len() > HOSTS_MAX {
        return Err(word.fault(Problem::TooMany));
    }
    Ok(())
}

type Parts<'a> = (Span<'a>, Option<Span<'a>>, Option<Span<'a>>);

/// Name, `:port` and `/slots`.
fn parts(word: Span<'_>) -> Parsed<Parts<'_>> {
    let (rest, slots) = word.cut(word.text.find('/'));
    if rest.text.parse::<Ipv6Addr>().is_ok() {
        return Err(rest.fault(Problem::Bare));
    }
    let brackets = rest.text.rfind(']').unwrap_or_default();
    let colon = rest.text[brackets..].find(':').map(|index| brackets + index);
    let (name, port) = rest.cut(colon);
    if name.text.is_empty() {
        return Err(word.fault(Problem::NoName));
    }
    Ok((name, port, slots))
}

/// `:port`
fn parse_port(span: Span<'_>) -> Parsed<u16> {
    let digits = span.behind_first().text;
    match digits.parse() {
        Ok(port) if port > 0 && is_number(digits) => Ok(port),
        _ => Err(span.fault(Problem::Port)),
    }
}

/// `/slots`
fn parse_slots(span: Span<'_>) -> Parsed<NonZeroU32> {
    let digits = span.behind_first().text;
    match digits.parse::<NonZeroU32>() {
        Ok(slots) if slots.get() <= SLOTS_MAX && is_number(digits) => Ok(slots),
        _ => Err(span.fault(Problem::Slots)),
    }
}

/// Without a sign, which the standard library takes.
fn is_number(digits: &str) -> bool {
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// The name, if it must be an address: its first bracket has a colon in it.
fn address(name: Span<'_>) -> Option<Span<'_>> {
    let inside = name.text.strip_prefix('[')?.split(']').next()?;
    inside.contains(':').then_some(name)
}

/// `[address]`, written as the standard library does.
fn parse_address(span: Span<'_>) -> Parsed<String> {
    let inside = span.text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let address = inside.and_then(|text| text.parse::<Ipv6Addr>().ok());
    Ok(address.ok_or_else(|| span.fault(Problem::Address))?.to_string())
}

/// A part of a name: what may stand there.
enum NamePart<'a> {
    Text(&'a str),
    Group(Vec<Numbers>),
}

/// The numbers of a range, padded to a number of digits.
#[derive(Clone, Copy)]
struct Numbers {
    low: u64,
    high: u64,
    digits: usize,
}

impl Numbers {
    fn count(self) -> u64 {
        self.high - self.low + 1
    }
}

/// All names that a name with groups stands for, `names_max` at most.
fn expand(name: Span<'_>, names_max: usize) -> Parsed<Vec<String>> {
    if name.text.starts_with('-') {
        return Err(name.fault(Problem::Dash));
    }
    let mut names = vec![String::new()];
    for piece in pieces(name, u64::try_from(names_max).unwrap_or(u64::MAX))? {
        names = names.iter().flat_map(|name| piece.behind(name)).collect();
        if names.iter().any(|name| name.len() > NAME_MAX) {
            return Err(name.fault(Problem::LongName));
        }
    }
    Ok(names)
}

impl NamePart<'_> {
    /// The names that result from appending a part.
    fn behind(&self, name: &str) -> Vec<String> {
        match self {
            NamePart::Text(text) => vec![format!("{name}{text}")],
            NamePart::Group(ranges) => {
                let numbers = ranges.iter().flat_map(|range| {
                    let Numbers { low, high, digits } = *range;
                    (low..=high).map(move |number| format!("{name}{number:0digits$}"))
                });
                numbers.collect()
            }
        }
    }
}

/// Texts and groups in turn, which make `names_max` names at most.
fn pieces(name: Span<'_>, names_max: u64) -> Parsed<Vec<NamePart<'_>>> {
    let (mut pieces, mut rest, mut count) = (Vec::new(), name, 1u64);
    while !rest.text.is_empty() {
        let (text, bracket) = rest.cut(rest.text.find('['));
        check_text(text)?;
        pieces.push(NamePart::Text(text.text));
        let Some(bracket) = bracket else { break };
        // Brackets are balanced: `host_len` has checked that.
        let end = bracket.text.find(']').unwrap_or_default();
        let ranges = group(bracket.part(1..end), names_max)?;
        let sum = ranges.iter().fold(0u64, |sum, range| sum.saturating_add(range.count()));
        count = count.saturating_mul(sum);
        if count > names_max {
            return Err(name.fault(Problem::TooMany));
        }
        pieces.push(NamePart::Group(ranges));
        rest = bracket.part(end + 1..bracket.text.len());
        // Each group is a character at least.
        if pieces.len() > 2 * NAME_MAX {
            return Err(name.fault(Problem::LongName));
        }
    }
    Ok(pieces)
}

fn check_text(span: Span<'_>) -> Parsed<()> {
    let legal =
        |character: char| character.is_ascii_alphanumeric() || matches!(character, '-' | '.' | '_');
    let wrong = span.text.char_indices().find(|(_, character)| !legal(*character));
    let Some((index, character)) = wrong else { return Ok(()) };
    Err(span.part(index..index + character.len_utf8()).fault(Problem::Character))
}

/// The ranges between brackets.
fn group(inside: Span<'_>, ranges_max: u64) -> Parsed<Vec<Numbers>> {
    let mut ranges = Vec::new();
    for part in inside.split(',') {
        ranges.push(range(part)?);
        if u64::try_from(ranges.len()).is_ok_and(|len| len > ranges_max) {
            return Err(inside.fault(Problem::TooMany));
        }
    }
    Ok(ranges)
}

fn range(span: Span<'_>) -> Parsed<Numbers> {
    let (low_digits, high_digits) = span.text.split_once('-').unwrap_or((span.text, span.text));
    let number = |digits: &str| {
        let short = is_number(digits) && digits.len() <= DIGITS_MAX;
        let number = short.then(|| digits.parse().ok()).flatten();
        number.ok_or_else(|| span.fault(Problem::Group))
    };
    let (low, high) = (number(low_digits)?, number(high_digits)?);
    if low > high {
        return Err(span.fault(Problem::Backwards));
    }
    let padded = |digits: &str| digits.len() > 1 && digits.starts_with('0');
    if padded(high_digits) && high_digits.len() != low_digits.len() {
        return Err(span.fault(Problem::Padding));
    }
    let digits = if padded(low_digits) { low_digits.len() } else { 0 };
    Ok(Numbers { low, high, digits })
}
