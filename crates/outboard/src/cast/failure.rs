//! What is said, and the exit status, when nothing could be cast; with `--json` one object as well.

use super::{CastArgs, Failure};
use serde_json::json;
use std::env;
use std::error::Error;
use std::ffi::OsStr;
use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

/// The exit status of a command line that is wrong by itself, as of options that there are not.
const WRONG_USAGE: u8 = 2;

/// The user's: what is wrong can be seen from the command line alone.
#[derive(Debug)]
pub(super) struct WrongUsage(String);

impl fmt::Display for WrongUsage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for WrongUsage {}

impl WrongUsage {
    /// As an error of the command.
    pub(super) fn of(why: impl Into<String>) -> Failure {
        Box::new(Self(why.into()))
    }
}

/// Says why nothing was cast.
pub(super) fn tell(args: &CastArgs, failure: &(dyn Error + 'static)) -> ExitCode {
    eprintln!("outboard: {failure}");
    if args.json {
        print_object(&failure.to_string());
    }
    if failure.is::<WrongUsage>() { ExitCode::from(WRONG_USAGE) } else { ExitCode::FAILURE }
}

/// Says what failed after the outcome was printed, which stays the only object.
pub(super) fn tell_late(failure: &dyn Error) -> ExitCode {
    eprintln!("outboard: {failure}");
    ExitCode::FAILURE
}

/// Says in JSON, too, why the words of a command cannot be read, if it is a cast that was asked for
/// JSON.
pub(crate) fn tell_wrong_words(error: &clap::Error) {
    let mut words = env::args_os().skip(1);
    let is_cast = words.next().is_some_and(|word| word == "cast");
    let mut options = words.take_while(|word| word != OsStr::new("--"));
    if error.use_stderr() && is_cast && options.any(|word| word == "--json") {
        print_object(error.to_string().trim_end());
    }
}

fn print_object(why: &str) {
    let object = json!({ "succeeded": false, "error": why });
    // Standard output may be what has failed.
    let _printed = writeln!(io::stdout(), "{object:#}");
}
