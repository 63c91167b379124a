//! Connections within one process, through the C entries.
