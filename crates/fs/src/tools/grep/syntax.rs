//! Patterns as grep(1) takes them: POSIX basic and extended regular expressions with GNU's
//! additions, and fixed strings, into a tree.
//!
//! Knows no automaton. What a pattern that POSIX leaves open means is what GNU grep makes of it.

use super::super::ToolError;
use super::charset::{CharRules, CharSet};

/// How patterns are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GrepSyntax {
    /// POSIX's basic regular expressions.
    #[default]
    Basic,
    /// POSIX's extended regular expressions.
    Extended,
    /// Strings.
    Fixed,
}

/// A pattern, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum GrepNode {
    Empty,
    Set(CharSet),
    At(GrepPlace),
    Sequence(Vec<Self>),
    Either(Vec<Self>),
    Repeat {
        what: Box<Self>,
        least: u32,
        most: Option<u32>,
    },
    /// What a later back-reference by this number is to.
    Group(Box<Self>, usize),
    BackReference(usize),
}

/// A place between characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GrepPlace {
    LineStart,
    LineEnd,
    WordStart,
    WordEnd,
    WordEdge,
    NoWordEdge,
    /// No character of a word is before it.
    NoWordBefore,
    /// None is behind it.
    NoWordBehind,
}

/// What `{` may say.
const REPEAT_MAX: u32 = 32767;
/// Groups within each other.
const DEPTH_MAX: usize = 250;

struct Parsing {
    text: Vec<char>,
    at: usize,
    is_extended: bool,
    rules: CharRules,
    groups: usize,
    closed: Vec<usize>,
    depth: usize,
}

fn wrong(why: &str) -> ToolError {
    ToolError::Words(why.to_owned())
}

/// Takes one pattern apart.
///
/// # Errors
/// The caller's: it is no pattern.
pub(super) fn parse(
    text: &[u8],
    syntax: GrepSyntax,
    rules: CharRules,
) -> Result<GrepNode, ToolError> {
    let text: Vec<char> = match (std::str::from_utf8(text), rules.is_utf8) {
        (Ok(text), true) => text.chars().collect(),
        (Err(_), true) => {
            return Err(wrong("the pattern is not UTF-8, as the locale says: set LC_ALL=C"));
        }
        (_, false) => text.iter().map(|byte| char::from(*byte)).collect(),
    };
    if syntax == GrepSyntax::Fixed {
        let sets = text.into_iter().map(|c| GrepNode::Set(CharSet::one(c, rules)));
        return Ok(sequence(sets.collect()));
    }
    let is_extended = syntax == GrepSyntax::Extended;
    let (groups, closed) = (0, Vec::new());
    let mut parsing = Parsing { text, at: 0, is_extended, rules, groups, closed, depth: 0 };
    let node = parsing.either()?;
    match parsing.at == parsing.text.len() {
        true => Ok(node),
        false => Err(wrong("Unmatched ) or \\)")),
    }
}

/// A pattern of names, as fnmatch(3) takes it.
pub(super) fn glob(pattern: &[u8], rules: CharRules) -> GrepNode {
    let text: Vec<char> = match std::str::from_utf8(pattern) {
        Ok(text) if rules.is_utf8 => text.chars().collect(),
        _ => pattern.iter().map(|byte| char::from(*byte)).collect(),
    };
    let any = || {
        let mut set = CharSet::any(rules);
        set.add('\n', '\n');
        GrepNode::Set(set)
    };
    let (mut nodes, mut at) = (Vec::new(), 0);
    while let Some(c) = text.get(at) {
        at += 1;
        let literal = |c: char| GrepNode::Set(CharSet::one(c, rules));
        nodes.push(match (c, text.get(at)) {
            ('*', _) => GrepNode::Repeat { what: Box::new(any()), least: 0, most: None },
            ('?', _) => any(),
            ('[', _) => match glob_bracket(&text[at..], rules) {
                Some((set, len)) => {
                    at += len;
                    GrepNode::Set(set)
                }
                None => literal('['),
            },
            ('\\', Some(escaped)) => {
                at += 1;
                literal(*escaped)
            }
            (c, _) => literal(*c),
        });
    }
    sequence(nodes)
}

/// A bracket expression of a name's pattern, behind its bracket, and its length; `None` if it is
/// none. Backslashes quote in it.
fn glob_bracket(text: &[char], rules: CharRules) -> Option<(CharSet, usize)> {
    let negated = usize::from(matches!(text.first(), Some('!' | '^')));
    let (mut set, mut at) = (CharSet::empty(), negated);
    let element = |at: &mut usize| -> Option<char> {
        *at += usize::from(text.get(*at) == Some(&'\\'));
        *at += 1;
        text.get(*at - 1).copied()
    };
    while text.get(at) != Some(&']') || at == negated {
        if text.get(at..at + 2) == Some(&['[', ':']) {
            let len = text[at + 2..].windows(2).position(|two| two == [':', ']'])?;
            let name: String = text[at + 2..at + 2 + len].iter().collect();
            set.union(&CharSet::named(&name, rules)?);
            at += len + 4;
            continue;
        }
        let first = element(&mut at)?;
        let is_range = text.get(at) == Some(&'-') && !matches!(text.get(at + 1), Some(']') | None);
        at += usize::from(is_range);
        let last = if is_range { element(&mut at)? } else { first };
        // A range that is none has nothing.
        if first <= last {
            set.union(&CharSet::range(first, last, rules));
        }
    }
    if negated > 0 {
        set.negate(rules);
    }
    Some((set, at + 1))
}

fn sequence(mut nodes: Vec<GrepNode>) -> GrepNode {
    match nodes.len() {
        0 => GrepNode::Empty,
        1 => nodes.remove(0),
        _ => GrepNode::Sequence(nodes),
    }
}

impl Parsing {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.text.get(self.at + ahead).copied()
    }

    /// Whether an operator is here, which basic expressions write with a backslash.
    fn is_operator(&self, c: char) -> bool {
        match self.is_extended {
            true => self.peek(0) == Some(c),
            false => self.peek(0) == Some('\\') && self.peek(1) == Some(c),
        }
    }

    fn skip_operator(&mut self) {
        self.at += if self.is_extended { 1 } else { 2 };
    }

    fn either(&mut self) -> Result<GrepNode, ToolError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(wrong("the pattern has too many groups within each other"));
        }
        let before = self.closed.clone();
        let mut all = vec![self.sequence()?];
        while self.is_operator('|') {
            self.skip_operator();
            // No back-reference is to a group of another branch.
            let closed = std::mem::replace(&mut self.closed, before.clone());
            all.push(self.sequence()?);
            self.closed.extend(closed);
        }
        self.depth -= 1;
        Ok(if all.len() == 1 { all.remove(0) } else { GrepNode::Either(all) })
    }

    fn sequence(&mut self) -> Result<GrepNode, ToolError> {
        let mut nodes = Vec::new();
        while self.at < self.text.len() && !self.is_operator('|') && !self.ends_group() {
            let is_first =
                nodes.iter().all(|node| matches!(node, GrepNode::At(GrepPlace::LineStart)));
            let atom = self.atom(is_first, nodes.is_empty())?;
            let repeated = self.repeated(atom)?;
            nodes.push(repeated);
        }
        Ok(sequence(nodes))
    }

    /// Whether a group ends here. Where there is none, an extended expression's is a character.
    fn ends_group(&self) -> bool {
        self.is_operator(')') && (self.depth > 1 || !self.is_extended)
    }

    fn literal(&self, c: char) -> GrepNode {
        GrepNode::Set(CharSet::one(c, self.rules))
    }

    fn atom(&mut self, is_first: bool, is_begin: bool) -> Result<GrepNode, ToolError> {
        if self.is_operator('(') {
            return self.group();
        }
        let Some(c) = self.peek(0) else { return Ok(GrepNode::Empty) };
        if self.is_extended && matches!(c, '*' | '+' | '?') {
            // Nothing is repeated.
            return Ok(GrepNode::Empty);
        }
        self.at += 1;
        match c {
            '\\' => self.escaped(),
            '.' => Ok(GrepNode::Set(CharSet::any(self.rules))),
            '[' => self.bracket(),
            '^' if self.is_extended || is_begin => Ok(GrepNode::At(GrepPlace::LineStart)),
            '$' if self.is_extended || self.ends_branch() => Ok(GrepNode::At(GrepPlace::LineEnd)),
            '{' if self.is_extended && is_first && self.interval(self.at).is_some() => {
                self.at -= 1;
                Ok(GrepNode::Empty)
            }
            c => Ok(self.literal(c)),
        }
    }

    fn ends_branch(&self) -> bool {
        self.at == self.text.len() || self.is_operator(')') || self.is_operator('|')
    }

    fn group(&mut self) -> Result<GrepNode, ToolError> {
        self.skip_operator();
        self.groups += 1;
        let number = self.groups;
        let inner = self.either()?;
        if !self.is_operator(')') {
            return Err(wrong("Unmatched ( or \\("));
        }
        self.skip_operator();
        self.closed.push(number);
        Ok(GrepNode::Group(Box::new(inner), number))
    }

    /// What stands behind a backslash.
    fn escaped(&mut self) -> Result<GrepNode, ToolError> {
        let c = self.peek(0).ok_or_else(|| wrong("Trailing backslash"))?;
        self.at += 1;
        let negated = |mut set: CharSet, rules| {
            set.negate(rules);
            GrepNode::Set(set)
        };
        let space = || CharSet::named("space", self.rules).unwrap_or_else(CharSet::empty);
        Ok(match c {
            '<' => GrepNode::At(GrepPlace::WordStart),
            '>' => GrepNode::At(GrepPlace::WordEnd),
            'b' => GrepNode::At(GrepPlace::WordEdge),
            'B' => GrepNode::At(GrepPlace::NoWordEdge),
            '`' => GrepNode::At(GrepPlace::LineStart),
            '\'' => GrepNode::At(GrepPlace::LineEnd),
            'w' => GrepNode::Set(CharSet::word(self.rules)),
            'W' => negated(CharSet::word(self.rules), self.rules),
            's' => GrepNode::Set(space()),
            'S' => negated(space(), self.rules),
            '1'..='9' => {
                let number = usize::try_from(c.to_digit(10).unwrap_or(0)).unwrap_or(0);
                if !self.closed.contains(&number) {
                    return Err(wrong("Invalid back reference"));
                }
                GrepNode::BackReference(number)
            }
            c => self.literal(c),
        })
    }

    /// What is repeated as the operators behind it say.
    fn repeated(&mut self, mut atom: GrepNode) -> Result<GrepNode, ToolError> {
        // A basic expression's star is itself where there is nothing that it could repeat.
        let is_place = matches!(atom, GrepNode::At(GrepPlace::LineStart)) && !self.is_extended;
        if is_place {
            return Ok(atom);
        }
        while let Some((least, most, len)) = self.repetition()? {
            self.at += len;
            atom = GrepNode::Repeat { what: Box::new(atom), least, most };
        }
        Ok(atom)
    }

    /// The repetition that is here, and how many characters it has.
    fn repetition(&self) -> Result<Option<(u32, Option<u32>, usize)>, ToolError> {
        let len = if self.is_extended { 1 } else { 2 };
        Ok(match self.peek(0) {
            Some('*') => Some((0, None, 1)),
            _ if self.is_operator('+') => Some((1, None, len)),
            _ if self.is_operator('?') => Some((0, Some(1), len)),
            _ if self.is_operator('{') => {
                let Some((least, most, end)) = self.interval(self.at + len) else {
                    // An extended expression's brace that says nothing is itself.
                    return match self.is_extended {
                        true => Ok(None),
                        false => Err(wrong("Invalid content of \\{\\}")),
                    };
                };
                if most.is_some_and(|most| most < least) {
                    return Err(wrong("Invalid content of \\{\\}"));
                }
                if least > REPEAT_MAX || most.is_some_and(|most| most > REPEAT_MAX) {
                    return Err(wrong("Regular expression too big"));
                }
                Some((least, most, end - self.at))
            }
            _ => None,
        })
    }

    /// Numbers of an interval whose inside begins at `at`, and where it ends.
    fn interval(&self, mut at: usize) -> Option<(u32, Option<u32>, usize)> {
        let number = |at: &mut usize| {
            let begin = *at;
            while self.text.get(*at).is_some_and(char::is_ascii_digit) {
                *at += 1;
            }
            let digits: String = self.text[begin..*at].iter().collect();
            (!digits.is_empty()).then(|| digits.parse::<u32>().unwrap_or(u32::MAX))
        };
        let least = number(&mut at);
        let most = if self.text.get(at) == Some(&',') {
            at += 1;
            number(&mut at)
        } else {
            Some(least?)
        };
        let end: &[char] = if self.is_extended { &['}'] } else { &['\\', '}'] };
        let is_ended = self.text.get(at..at + end.len()) == Some(end);
        is_ended.then_some((least.unwrap_or(0), most, at + end.len()))
    }

    /// A bracket expression, behind its bracket.
    fn bracket(&mut self) -> Result<GrepNode, ToolError> {
        const OPEN: &str = "Unmatched [, [^, [:, [., or [=";
        let begin = self.at;
        let is_negated = self.peek(0) == Some('^');
        self.at += usize::from(is_negated);
        let (mut set, mut is_first) = (CharSet::empty(), true);
        loop {
            let c = self.peek(0).ok_or_else(|| wrong(OPEN))?;
            if c == ']' && !is_first {
                break;
            }
            is_first = false;
            if c == '[' && self.peek(1) == Some(':') {
                let name = self.inside(':').ok_or_else(|| wrong(OPEN))?;
                let class = CharSet::named(&name, self.rules);
                set.union(&class.ok_or_else(|| wrong("Invalid character class name"))?);
                continue;
            }
            let first = self.element()?;
            let is_range = self.peek(0) == Some('-') && !matches!(self.peek(1), Some(']') | None);
            if is_range {
                self.at += 1;
                let last = self.element()?;
                if last < first {
                    return Err(wrong("Invalid range end"));
                }
                set.union(&CharSet::range(first, last, self.rules));
            } else {
                set.union(&CharSet::one(first, self.rules));
            }
        }
        let inside: Vec<char> = self.text[begin..self.at].to_vec();
        if inside.len() > 1 && inside[0] == ':' && inside[inside.len() - 1] == ':' {
            return Err(wrong("character class syntax is [[:space:]], not [:space:]"));
        }
        self.at += 1;
        match is_negated {
            true => set.negate(self.rules),
            // No line has a line's end.
            false => set.class.difference(&CharSet::range('\n', '\n', self.rules).class),
        }
        Ok(GrepNode::Set(set))
    }

    /// One character of a bracket expression.
    fn element(&mut self) -> Result<char, ToolError> {
        let c = self.peek(0).ok_or_else(|| wrong("Unmatched [, [^, [:, [., or [="))?;
        let Some(kind @ ('.' | '=')) = self.peek(1).filter(|_| c == '[') else {
            self.at += 1;
            return Ok(c);
        };
        let name = self.inside(kind).unwrap_or_default();
        let mut chars = name.chars();
        match (chars.next(), chars.next()) {
            (Some(only), None) => Ok(only),
            _ => Err(wrong("Invalid collation character")),
        }
    }

    /// What stands in `[:` and `:]`, or their like.
    fn inside(&mut self, kind: char) -> Option<String> {
        let begin = self.at + 2;
        let rest = self.text.get(begin..)?;
        let len = rest.windows(2).position(|two| two == [kind, ']'])?;
        self.at = begin + len + 2;
        Some(rest[..len].iter().collect())
    }
}
