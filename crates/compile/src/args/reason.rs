//! Why a compilation runs locally.
//!
//! A closed list of causes, one row of the statistics each, and for some the word at fault.

use std::ffi::OsStr;
use std::fmt;

/// Bytes of a word at fault that are kept, at most.
const WORD_BYTES_MAX: usize = 400;
/// Stands for what was cut off.
const CUT: &str = "…";

/// Why a job runs locally: a cause and, where there is one, the word at fault.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reason {
    /// The cause.
    pub cause: Cause,
    /// The option, file or name at fault; empty when the cause says it all. At most
    /// 400 bytes, cut and marked where it is longer.
    pub word: String,
}

impl Reason {
    /// `cause`, with the word at fault.
    #[must_use]
    pub fn with(cause: Cause, word: impl AsRef<OsStr>) -> Self {
        let mut word = word.as_ref().to_string_lossy().into_owned();
        if word.len() > WORD_BYTES_MAX {
            word.truncate(word.floor_char_boundary(WORD_BYTES_MAX - CUT.len()));
            word += CUT;
        }
        Self { cause, word }
    }
}

impl From<Cause> for Reason {
    fn from(cause: Cause) -> Self {
        Self { cause, word: String::new() }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.word {
            "" => f.write_str(self.cause.text()),
            word => write!(f, "{}: {word}", self.cause.text()),
        }
    }
}

impl Cause {
    /// Whether the call alone is the cause: it could not run remotely with any servers.
    #[must_use]
    pub fn is_of_words(self) -> bool {
        self < Self::NoServers
    }
}

macro_rules! causes {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// Every cause there is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Cause { $($(#[$doc])* $name,)* }

        impl Cause {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The text for users, which is also the key in machine-readable statistics.
            #[must_use]
            pub fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

causes! {
    /// It links, or does not compile at all.
    Link = "links",
    /// `-E`, `-M`, `-MM`: preprocessing is all that is wanted.
    Preprocess = "preprocesses only",
    /// `--version`, `-print-…`, `-###`: it asks the compiler something.
    Query = "asks the compiler something",
    /// No source among the words.
    NoSource = "has no source",
    /// More than one source.
    ManySources = "has several sources",
    /// A source that is read from standard input.
    StandardInput = "reads standard input",
    /// An output that is no ordinary file's name.
    StandardOutput = "writes to no ordinary file",
    /// A source in a language that is not known here.
    UnknownLanguage = "is in another language",
    /// The program that was called is no compiler of these families.
    UnknownCompiler = "is no known compiler",
    /// A header is precompiled.
    PrecompiledHeader = "precompiles a header",
    /// Modules of C++ or clang.
    Modules = "uses modules",
    /// `-march=native` and similar options: the server may have another processor.
    Native = "is tuned to this processor",
    /// Foreign code, other parts or other search paths for the compiler.
    ForeignCode = "brings its own compiler parts",
    /// A profile that was recorded earlier is read.
    Profile = "reads a recorded profile",
    /// Side outputs whose names or contents would differ remotely.
    SideOutput = "writes special side outputs",
    /// An option that is not known here.
    UnknownOption = "has an unknown option",
    /// An option that lacks its argument, or a response file that cannot be read.
    Malformed = "has a malformed command line",
    /// A variable of the environment that changes what compilers do.
    Environment = "has a special environment",
    /// Words that are not text where text is needed, or too many of them.
    TooLarge = "is too large a request",
    /// No server is connected.
    NoServers = "found no server",
    /// A look at its files, or its compiler's answer, took too long.
    Unanswered = "has files on a file system that does not answer",
    /// It was on servers for too long while a local slot was free.
    Slow = "took too long on a server",
    /// It is one of many short jobs, each of which the build waits for.
    OneByOne = "came one at a time",
    /// Preprocessing failed, or its output cannot be handed over.
    Unpreprocessed = "could not be preprocessed locally",
    /// No server had claimed the job while a local slot was free.
    Unclaimed = "found no free slot in time",
    /// The compiler reported an error on a server, and ran again locally.
    FailedRemotely = "failed remotely and was run again",
    /// The compiler wanted something that is not shown to servers.
    Refused = "wanted what is not shown to servers",
    /// No server has this compiler.
    NoToolchain = "found no server with this compiler",
    /// Servers died, hung or sent invalid messages.
    ServersFailed = "was lost by servers",
    /// An output could not be written to its path.
    Placement = "could not have its outputs placed",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_word_is_marked_where_it_is_cut() {
        let sentence = "another node is there: ".repeat(15);
        assert_eq!(Reason::with(Cause::NoServers, &sentence).word, sentence);
        let cut = Reason::with(Cause::NoServers, "\u{e9}".repeat(WORD_BYTES_MAX)).word;
        assert!(cut.ends_with("\u{e9}\u{2026}") && cut.len() <= WORD_BYTES_MAX, "{cut}");
    }
}
