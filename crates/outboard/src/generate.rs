//! `outboard generate`: manual pages and completions, made from the command line's definition,
//! so that they cannot differ from it.

use crate::Outcome;
use crate::cli::Cli;
use clap::{CommandFactory, ValueEnum};
use clap_complete::Shell;
use std::path::Path;

/// What can be generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum What {
    /// Manual pages, one for each command.
    Man,
    /// Completions for all shells.
    Completions,
}

pub(crate) fn run(what: What, dir: &Path) -> Outcome {
    let cannot = |error| format!("cannot write to {}: {error}", dir.display());
    std::fs::create_dir_all(dir).map_err(cannot)?;
    let mut command = Cli::command();
    match what {
        What::Man => clap_mangen::generate_to(command, dir).map_err(cannot)?,
        What::Completions => {
            for shell in Shell::value_variants() {
                clap_complete::generate_to(*shell, &mut command, "outboard", dir)
                    .map_err(cannot)?;
            }
        }
    }
    Ok(())
}
