//! Patterns against GNU grep.
