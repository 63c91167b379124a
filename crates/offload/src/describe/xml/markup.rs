//! A tolerant reader of XML: attributes without quotes, elements that nobody closes, comments.
//!
//! Never fails but at its limits, and never resolves anything outside the text: no entity but the
//! five of XML, no document type.

use super::super::fault::{LineIndex, TextFault};
use super::Assumption;

/// Elements, at most.
const ELEMENTS_MAX: usize = 4096;
/// Elements inside each other, at most.
const DEPTH_MAX: usize = 32;
/// Attributes of an element, at most.
const ATTRIBUTES_MAX: usize = 32;
/// Assumptions, at most.
const ASSUMPTIONS_MAX: usize = 256;

/// An element.
#[derive(Debug, Default)]
pub(super) struct Element {
    pub(super) line: u32,
    pub(super) name: String,
    pub(super) attributes: Vec<(String, String)>,
    /// Its own text, without the space around it.
    pub(super) text: String,
    /// Indices of the elements in it.
    pub(super) children: Vec<usize>,
}

/// The elements of a text, and what was assumed of it.
#[derive(Debug)]
pub(super) struct Markup {
    /// The first is the text as a whole: the elements that are in no other are its children.
    pub(super) elements: Vec<Element>,
    pub(super) assumptions: Vec<Assumption>,
}

impl Markup {
    /// The elements of a text; those named `empty` have no content, whether they say so or not.
    pub(super) fn parse(text: &str, empty: &[&str]) -> Result<Self, TextFault> {
        let lines = LineIndex::new(text);
        let mut reader = Reader {
            text,
            at: 0,
            lines: &lines,
            empty,
            open: vec![0],
            markup: Self { elements: vec![Element::default()], assumptions: Vec::new() },
        };
        while reader.step()? {}
        reader.end();
        Ok(reader.markup)
    }

    /// The children of an element that have a name, whatever its capitals.
    pub(super) fn children<'a>(
        &'a self,
        of: &'a Element,
        name: &'a str,
    ) -> impl Iterator<Item = &'a Element> + 'a {
        let children = of.children.iter().map(|index| &self.elements[*index]);
        children.filter(move |child| child.name.eq_ignore_ascii_case(name))
    }

    /// The first such child.
    pub(super) fn child<'a>(&'a self, of: &'a Element, name: &'a str) -> Option<&'a Element> {
        self.children(of, name).next()
    }

    pub(super) fn assume(&mut self, line: u32, text: impl Into<String>) {
        if self.assumptions.len() < ASSUMPTIONS_MAX {
            self.assumptions.push(Assumption { line, text: text.into() });
        }
    }
}

impl Element {
    pub(super) fn attribute(&self, name: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
    lines: &'t LineIndex,
    empty: &'t [&'t str],
    /// Elements that are open, the outermost first.
    open: Vec<usize>,
    markup: Markup,
}

impl<'t> Reader<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn line(&self) -> u32 {
        self.lines.line(self.at)
    }

    /// Takes the text up to `end`, and `end`; all that is left if it is not there.
    fn take_until(&mut self, end: &str) -> &'t str {
        let rest = self.rest();
        match rest.find(end) {
            Some(found) => {
                self.at += found + end.len();
                &rest[..found]
            }
            None => {
                let line = self.line();
                self.markup.assume(line, format!("{end:?} is missing: all that follows is taken"));
                self.at = self.text.len();
                rest
            }
        }
    }

    /// Reads one tag, comment or text; false at the end.
    fn step(&mut self) -> Result<bool, TextFault> {
        let rest = self.rest();
        if rest.is_empty() {
            return Ok(false);
        }
        const MARKS: [&str; 5] = ["<!--", "<![CDATA[", "<!", "<?", "</"];
        if let Some(mark) = MARKS.into_iter().find(|mark| rest.starts_with(mark)) {
            self.at += mark.len();
            self.marked(mark);
            return Ok(true);
        }
        let is_name = |c: char| c.is_ascii_alphabetic() || c == '_';
        if rest.strip_prefix('<').is_some_and(|behind| behind.starts_with(is_name)) {
            self.at += 1;
            self.start()?;
            return Ok(true);
        }
        // Text up to the next mark; a `<` that begins none is text, too.
        let len = rest.len() - rest.trim_start_matches('<').len();
        let end = rest[len..].find('<').map_or(rest.len(), |end| len + end);
        let line = self.line();
        self.at += end;
        let text = self.unescape(&rest[..end], line);
        self.push_text(&text);
        Ok(true)
    }

    fn marked(&mut self, mark: &str) {
        match mark {
            "<!--" => {
                self.take_until("-->");
            }
            "<![CDATA[" => {
                let text = self.take_until("]]>");
                self.push_text(text);
            }
            "</" => {
                let line = self.line();
                let name = self.take_until(">").trim();
                self.close(name, line);
            }
            _ => {
                self.take_until(">");
            }
        }
    }

    fn push_text(&mut self, text: &str) {
        let own = &mut self.markup.elements[*self.open.last().unwrap_or(&0)].text;
        let text = text.trim();
        if !own.is_empty() && !text.is_empty() {
            own.push(' ');
        }
        own.push_str(text);
    }

    /// A start tag, behind its `<`.
    fn start(&mut self) -> Result<(), TextFault> {
        let line = self.line();
        let name = self.word().to_owned();
        let fault = |what: &str, max: usize| {
            Err(TextFault::new(line, format!("at most {max} {what} may be in a description")))
        };
        if self.markup.elements.len() > ELEMENTS_MAX {
            return fault("elements", ELEMENTS_MAX);
        }
        if self.open.len() > DEPTH_MAX {
            return fault("elements inside each other", DEPTH_MAX);
        }
        let mut attributes = Vec::new();
        let closed = loop {
            self.skip_space();
            match self.rest().as_bytes() {
                [] | [b'<', ..] => {
                    self.markup
                        .assume(line, format!("the tag <{name}> has no end: taken as ended"));
                    break false;
                }
                [b'/', b'>', ..] => {
                    self.at += 2;
                    break true;
                }
                [b'>', ..] => {
                    self.at += 1;
                    break false;
                }
                _ if attributes.len() == ATTRIBUTES_MAX => {
                    return fault("attributes of an element", ATTRIBUTES_MAX);
                }
                _ => attributes.extend(self.attribute()),
            }
        };
        self.open_element(Element { line, name, attributes, ..Element::default() }, closed);
        Ok(())
    }

    fn open_element(&mut self, element: Element, closed: bool) {
        let is_empty = self.empty.iter().any(|empty| empty.eq_ignore_ascii_case(&element.name));
        if is_empty && !closed {
            let (line, name) = (element.line, &element.name);
            let text = format!("<{name}> is not closed: taken for an empty element <{name}/>");
            self.markup.assume(line, text);
        }
        let index = self.markup.elements.len();
        self.markup.elements.push(element);
        let parent = *self.open.last().unwrap_or(&0);
        self.markup.elements[parent].children.push(index);
        if !closed && !is_empty {
            self.open.push(index);
        }
    }

    fn skip_space(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    /// What is neither space nor a mark of tags.
    fn word(&mut self) -> &'t str {
        let rest = self.rest();
        let is_end = |c: char| c.is_whitespace() || "<>=/\"'".contains(c);
        let word = &rest[..rest.find(is_end).unwrap_or(rest.len())];
        self.at += word.len();
        word
    }

    /// One attribute, or a character that nothing begins with.
    fn attribute(&mut self) -> Option<(String, String)> {
        let line = self.line();
        let name = self.word();
        if name.is_empty() {
            let stray = self.rest().chars().next()?;
            self.at += stray.len_utf8();
            self.markup.assume(line, format!("{stray:?} in a tag is ignored"));
            return None;
        }
        self.skip_space();
        if !self.rest().starts_with('=') {
            self.markup.assume(line, format!("the attribute {name} has no value: read as empty"));
            return Some((name.to_owned(), String::new()));
        }
        self.at += 1;
        self.skip_space();
        let value = self.value(name, line);
        Some((name.to_owned(), value))
    }

    /// An attribute's value, in quotes or without.
    fn value(&mut self, name: &str, line: u32) -> String {
        let quote = self.rest().chars().next().filter(|c| matches!(c, '"' | '\''));
        let value = match quote {
            Some(quote) => {
                self.at += 1;
                self.take_until(quote.encode_utf8(&mut [0; 4]))
            }
            None => {
                let rest = self.rest();
                let end = rest.find(|c: char| c.is_whitespace() || matches!(c, '<' | '>'));
                let word = &rest[..end.unwrap_or(rest.len())];
                let word = word.strip_suffix('/').unwrap_or(word);
                self.at += word.len();
                let text = format!("the attribute {name} has no quotes: read as {word}");
                self.markup.assume(line, text);
                word
            }
        };
        self.unescape(value, line)
    }

    /// An end tag: closes the innermost element of its name, and what is open in that.
    fn close(&mut self, name: &str, line: u32) {
        if self.empty.iter().any(|empty| empty.eq_ignore_ascii_case(name)) {
            return;
        }
        let is_it = |index: &usize| self.markup.elements[*index].name.eq_ignore_ascii_case(name);
        match self.open.iter().rposition(is_it) {
            // The first is the text itself, which has no name.
            None | Some(0) => {
                self.markup.assume(line, format!("</{name}> closes nothing: ignored"))
            }
            Some(depth) => {
                let left = self.open.split_off(depth);
                self.assume_closed(&left[1..], &format!("where <{name}> ends"));
            }
        }
    }

    fn assume_closed(&mut self, left: &[usize], place: &str) {
        for index in left {
            let (line, name) = {
                let element = &self.markup.elements[*index];
                (element.line, element.name.clone())
            };
            self.markup.assume(line, format!("<{name}> is not closed: taken as closed {place}"));
        }
    }

    fn end(&mut self) {
        let left = self.open.split_off(1);
        self.assume_closed(&left, "at the end");
    }

    /// The five entities of XML; others stay as they are.
    fn unescape(&mut self, text: &str, line: u32) -> String {
        const ENTITIES: [(&str, char); 5] =
            [("&lt;", '<'), ("&gt;", '>'), ("&quot;", '"'), ("&apos;", '\''), ("&amp;", '&')];
        let mut plain = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find('&') {
            plain.push_str(&rest[..at]);
            rest = &rest[at..];
            match ENTITIES.into_iter().find(|(entity, _)| rest.starts_with(entity)) {
                Some((entity, character)) => {
                    plain.push(character);
                    rest = &rest[entity.len()..];
                }
                None => {
                    self.markup.assume(line, "a & that begins no entity of XML is read as it is");
                    plain.push('&');
                    rest = &rest[1..];
                }
            }
        }
        plain.push_str(rest);
        plain
    }
}
