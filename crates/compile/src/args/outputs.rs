//! The outputs that follow from a command line, by the compiler's rules for their names.
//!
//! Compilers may make further ones, which are returned as well.

use super::Output;
use std::path::{Path, PathBuf};

/// The options about outputs on a command line.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    /// `-o`.
    pub(super) object: Option<PathBuf>,
    /// `-S` instead of `-c`.
    pub(super) assembly: bool,
    /// `-MD` or `-MMD`.
    pub(super) dependencies: bool,
    /// `-MF`, or the file of `-Wp,-MD,FILE`.
    pub(super) dependencies_to: Option<PathBuf>,
    /// `-gsplit-dwarf`.
    pub(super) split_debug: bool,
    /// `-fstack-usage`.
    pub(super) stack_usage: bool,
    /// `-ftest-coverage`.
    pub(super) coverage_notes: bool,
}

impl Wanted {
    /// The outputs for `source`, the object first.
    pub(super) fn outputs(&self, source: &Path) -> Vec<Output> {
        let object = self.object.clone().unwrap_or_else(|| self.object_of(source));
        // Beside the object, under its name less the last extension.
        let beside = |extension: &str| object.with_extension(extension);
        let mut outputs = vec![Output::Object(object.clone())];
        if self.dependencies {
            let to = self.dependencies_to.clone().unwrap_or_else(|| beside("d"));
            outputs.push(Output::Dependencies(to));
        }
        if self.split_debug && !self.assembly {
            outputs.push(Output::SplitDebug(beside("dwo")));
        }
        if self.stack_usage {
            outputs.push(Output::StackUsage(beside("su")));
        }
        if self.coverage_notes {
            outputs.push(Output::CoverageNotes(beside("gcno")));
        }
        outputs
    }

    fn object_of(&self, source: &Path) -> PathBuf {
        let name = Path::new(source.file_name().unwrap_or(source.as_os_str()));
        name.with_extension(if self.assembly { "s" } else { "o" })
    }

    /// Whether all are names of ordinary files, as far as names tell.
    pub(super) fn is_ordinary(&self) -> bool {
        let special = |path: &PathBuf| path.as_os_str() == "-" || path.starts_with("/dev");
        ![&self.object, &self.dependencies_to].into_iter().flatten().any(special)
    }
}
