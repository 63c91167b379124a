//! `--include`, `--exclude` and `--exclude-dir`, in the order in which the command line has them.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueHint, value_parser};
use outboard_fs::tools::{GrepNameRule, GrepNames};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

const FILES: [(&str, GrepNameRule, &str); 2] = [
    ("include", GrepNameRule::Include, "Only files with such names"),
    ("exclude", GrepNameRule::Exclude, "No files with such names"),
];
const DIRECTORIES: &str = "exclude-dir";

/// See this file's first lines.
#[derive(Clone, Debug, Default)]
pub(super) struct NameGlobs(pub(super) GrepNames);

impl FromArgMatches for NameGlobs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let said = |name: &str| {
            let places = matches.indices_of(name).into_iter().flatten();
            let globs = matches.get_many::<OsString>(name).into_iter().flatten();
            places.zip(globs.map(|glob| glob.as_bytes().to_vec())).collect::<Vec<_>>()
        };
        let ruled =
            |(name, rule, _)| said(name).into_iter().map(move |(at, glob)| (at, rule, glob));
        let mut files: Vec<_> = FILES.into_iter().flat_map(ruled).collect();
        files.sort_by_key(|(at, ..)| *at);
        let files = files.into_iter().map(|(_, rule, glob)| (rule, glob)).collect();
        let directories = said(DIRECTORIES).into_iter().map(|(_, glob)| glob).collect();
        Ok(Self(GrepNames { files, directories }))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for NameGlobs {
    fn augment_args(command: Command) -> Command {
        let glob = |name: &'static str, help: &'static str| {
            let arg = Arg::new(name).long(name).value_name("GLOB").action(ArgAction::Append);
            let hint = ValueHint::Other;
            arg.value_parser(value_parser!(OsString)).value_hint(hint).help(help)
        };
        let command = command.args(FILES.map(|(name, _, help)| glob(name, help)));
        command.arg(glob(DIRECTORIES, "Nothing in directories with such names"))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}
