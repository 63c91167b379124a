//! Text that is written line by line, indented by its braces.
//!
//! Never grows without bound: [`Text::finish`] refuses what is too long, and lines beyond that
//! are not kept.

use std::fmt::Display;

use crate::error::InterfaceError;

/// Bytes of generated text, at most.
const TEXT_LEN_MAX: usize = 4 << 20;

#[derive(Default)]
pub(super) struct Text {
    text: String,
    indent: usize,
}

impl Text {
    /// A line; one that ends with an opening brace indents those that follow, up to the line that
    /// begins with the closing one.
    pub(super) fn line(&mut self, line: impl Display) {
        if self.text.len() > TEXT_LEN_MAX {
            return;
        }
        let line = line.to_string();
        if line.starts_with('}') {
            self.indent = self.indent.saturating_sub(1);
        }
        // Directives of C stand at the margin, attributes of Rust do not.
        let is_directive = line.starts_with('#') && !line.starts_with("#[");
        if !line.is_empty() && !is_directive {
            self.text.push_str(&"    ".repeat(self.indent));
        }
        self.text.push_str(&line);
        self.text.push('\n');
        if line.ends_with('{') {
            self.indent += 1;
        }
    }

    /// Lines as they are.
    pub(super) fn verbatim(&mut self, lines: &str) {
        self.text.push_str(lines);
        self.text.push('\n');
    }

    pub(super) fn blank(&mut self) {
        self.line("");
    }

    /// The text that was written.
    pub(super) fn finish(self) -> Result<String, InterfaceError> {
        InterfaceError::check("generated code", self.text.len(), "bytes", TEXT_LEN_MAX)?;
        Ok(self.text)
    }
}
