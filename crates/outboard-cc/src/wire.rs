//! The messages between wrapper and manager: a request and a reply (two, if the wrapper
//! preprocesses in between), in this machine's byte order.
//!
//! Both come from one build and one user, but `parse` trusts neither length nor count: a request
//! has at most [`REQUEST_BYTES_MAX`] bytes.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// First word of a request. It changes with the version of the messages.
const MAGIC: u32 = u32::from_le_bytes(*b"occ2");
/// Bytes before a request's body: the magic and the body's length.
pub const HEAD_BYTES: usize = 8;
/// Bytes of a reply before its texts.
pub const REPLY_BYTES: usize = 16;
/// Bytes of a request's body. Linux gives a program at most 6 MiB of words.
pub const REQUEST_BYTES_MAX: usize = 8 << 20;

const TERMINAL: u32 = 1;
const LOCAL: u32 = 0;
const DONE: u32 = 1;
const PREPROCESS: u32 = 2;

/// The variable that says how a job is handed over: `pull`, `preprocess` or `preprocess-disk`.
pub const MODE: &str = "OUTBOARD_CC_MODE";
/// The variable that names directories to be shown to servers, separated by colons.
pub const SHOW: &str = "OUTBOARD_CC_SHOW";
/// The variable that, with the value `0`, makes a job fail that could run remotely and does not.
pub const FALLBACK: &str = "OUTBOARD_CC_FALLBACK";
/// The variable that has each wrapper show where its job ran, and why there.
pub const VERBOSE: &str = "OUTBOARD_CC_VERBOSE";

/// Variables that compilers read: names, or beginnings of names where a `*` ends them. No others go
/// to the manager.
pub const VARIABLES: &[&str] = &[
    "CCC_*",
    "CC_LOG_DIAGNOSTICS*",
    "CC_PRINT_*",
    "CLANG_*",
    "CLICOLOR*",
    "COLLECT_*",
    "COLUMNS",
    "COMPILER_PATH",
    "CPATH",
    "CPLUS_INCLUDE_PATH",
    "C_INCLUDE_PATH",
    "DEPENDENCIES_OUTPUT",
    FALLBACK,
    "GCC_*",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "LD_AUDIT",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "NO_COLOR",
    "OBJCPLUS_INCLUDE_PATH",
    "OBJC_INCLUDE_PATH",
    MODE,
    "PATH",
    "PWD",
    "SDKROOT",
    SHOW,
    "SOURCE_DATE_EPOCH",
    "SUNPRO_DEPENDENCIES",
    "TERM",
    "TERM_URLS",
    "TZ",
    "TZDIR",
    VERBOSE,
];

/// Whether a variable goes to the manager.
#[must_use]
pub fn is_wanted(name: &OsStr) -> bool {
    VARIABLES.iter().any(|wanted| match wanted.strip_suffix('*') {
        Some(start) => name.as_bytes().starts_with(start.as_bytes()),
        None => name.as_bytes() == wanted.as_bytes(),
    })
}

/// A compiler's call, as the wrapper saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompileRequest {
    /// The real compiler.
    pub compiler: OsString,
    /// The command line, the compiler's name first.
    pub argv: Vec<OsString>,
    /// The working directory.
    pub cwd: OsString,
    /// The variables that [`is_wanted`] wants.
    pub env: Vec<(OsString, OsString)>,
    /// The file mode creation mask.
    pub umask: u32,
    /// Standard error is a terminal.
    pub terminal: bool,
}

/// The bytes are no message of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl CompileRequest {
    /// Writes the request, head first.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&MAGIC.to_ne_bytes());
        out.extend_from_slice(&[0; 4]);
        put(out, self.umask);
        put(out, if self.terminal { TERMINAL } else { 0 });
        put_text(out, &self.compiler);
        put_text(out, &self.cwd);
        put(out, length(self.argv.len()));
        self.argv.iter().for_each(|word| put_text(out, word));
        put(out, length(self.env.len()));
        for (name, value) in &self.env {
            put_text(out, name);
            put_text(out, value);
        }
        let body = length(out.len() - start - HEAD_BYTES);
        out[start + 4..start + 8].copy_from_slice(&body.to_ne_bytes());
    }

    /// The length of the body behind a head.
    ///
    /// # Errors
    /// The head is of another version, or the body is too long.
    pub fn body_bytes(head: &[u8; HEAD_BYTES]) -> Result<usize, Malformed> {
        let mut fields = Fields(head);
        let (magic, bytes) = (fields.word()?, fields.word()? as usize);
        if magic == MAGIC && bytes <= REQUEST_BYTES_MAX { Ok(bytes) } else { Err(Malformed) }
    }

    /// Reads a body.
    ///
    /// # Errors
    /// Its lengths do not add up.
    pub fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Fields(body);
        let umask = fields.word()?;
        let terminal = fields.word()? & TERMINAL != 0;
        let (compiler, cwd) = (fields.text()?, fields.text()?);
        let argv = fields.many(Fields::text)?;
        let env = fields.many(|fields| Ok((fields.text()?, fields.text()?)))?;
        let request = Self { compiler, argv, cwd, env, umask, terminal };
        if fields.0.is_empty() && !request.argv.is_empty() { Ok(request) } else { Err(Malformed) }
    }
}

/// A reply of the manager's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Become the compiler. The wrapper holds a local slot as long as this connection is open: it
    /// stays open until the compiler has ended.
    Local {
        /// Text to show first; empty unless the wrapper is verbose.
        why: Vec<u8>,
    },
    /// Run the compiler with these words, which preprocess to standard output, and send the file's
    /// descriptor with one byte; another reply follows. The wrapper holds a local slot while it
    /// preprocesses. If preprocessing fails, the wrapper becomes the compiler and keeps the slot.
    Preprocess {
        /// The words after the compiler's name, each followed by a zero byte.
        words: Vec<u8>,
        /// The directory for a file on disk; empty for a file in memory.
        beside: Vec<u8>,
    },
    /// The compiler ran remotely, and its outputs are in place.
    Done {
        /// The exit status as wait(2) encodes it.
        status: i32,
        /// Its standard output.
        stdout: Vec<u8>,
        /// Its standard error.
        stderr: Vec<u8>,
    },
}

impl Reply {
    /// Writes the reply.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let (kind, status, texts): (u32, i32, [&[u8]; 2]) = match self {
            Self::Local { why } => (LOCAL, 0, [&[], why]),
            Self::Preprocess { words, beside } => (PREPROCESS, 0, [words, beside]),
            Self::Done { status, stdout, stderr } => (DONE, *status, [stdout, stderr]),
        };
        put(out, kind);
        out.extend_from_slice(&status.to_ne_bytes());
        texts.iter().for_each(|text| put(out, length(text.len())));
        texts.iter().for_each(|text| out.extend_from_slice(text));
    }

    /// Parses a reply's head. The texts of the reply have the announced lengths; the caller reads
    /// their bytes into them.
    ///
    /// # Errors
    /// It is no reply.
    pub fn parse_head(head: &[u8; REPLY_BYTES]) -> Result<Self, Malformed> {
        let mut fields = Fields(head);
        let (kind, status) = (fields.word()?, fields.word()?.cast_signed());
        let mut text = || Ok(vec![0; fields.word()? as usize]);
        match kind {
            LOCAL => Ok(Self::Local { why: [text()?, text()?].concat() }),
            PREPROCESS => Ok(Self::Preprocess { words: text()?, beside: text()? }),
            DONE => Ok(Self::Done { status, stdout: text()?, stderr: text()? }),
            _ => Err(Malformed),
        }
    }
}

fn put(out: &mut Vec<u8>, word: u32) {
    out.extend_from_slice(&word.to_ne_bytes());
}

fn put_text(out: &mut Vec<u8>, text: &OsStr) {
    put(out, length(text.len()));
    out.extend_from_slice(text.as_bytes());
}

/// A longer text gives a body that is too long, which the manager refuses.
fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn word(&mut self) -> Result<u32, Malformed> {
        let (word, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(u32::from_ne_bytes(*word))
    }

    fn text(&mut self) -> Result<OsString, Malformed> {
        let bytes = self.word()? as usize;
        let (text, rest) = self.0.split_at_checked(bytes).ok_or(Malformed)?;
        self.0 = rest;
        Ok(OsString::from_vec(text.to_vec()))
    }

    fn many<T>(
        &mut self,
        one: impl Fn(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        // Nothing is reserved: the count may be larger than the number of texts that follow.
        (0..self.word()?).map(|_| one(self)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> CompileRequest {
        CompileRequest {
            compiler: "/usr/bin/gcc".into(),
            argv: vec!["gcc".into(), "-c".into(), OsString::from_vec(vec![0xff, b'\n'])],
            cwd: "/a b".into(),
            env: vec![("LANG".into(), "C".into()), ("PWD".into(), "".into())],
            umask: 0o27,
            terminal: true,
        }
    }

    fn bytes(request: &CompileRequest) -> Vec<u8> {
        let mut out = Vec::new();
        request.emit(&mut out);
        out
    }

    #[test]
    fn a_request_comes_out_as_it_went_in() {
        let all = bytes(&request());
        let (head, body) = all.split_first_chunk().unwrap();
        assert_eq!(CompileRequest::body_bytes(head), Ok(body.len()));
        assert_eq!(CompileRequest::parse(body), Ok(request()));
    }

    #[test]
    fn whatever_is_cut_off_or_appended_is_malformed() {
        let all = bytes(&request());
        let body = &all[HEAD_BYTES..];
        for end in 0..body.len() {
            assert_eq!(CompileRequest::parse(&body[..end]), Err(Malformed), "{end}");
        }
        assert_eq!(CompileRequest::parse(&[body, b"x"].concat()), Err(Malformed));
    }

    #[test]
    fn a_huge_count_reserves_nothing() {
        let mut body = bytes(&CompileRequest { argv: vec![], env: vec![], ..request() });
        let at = body.len() - 8;
        body[at..at + 4].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(CompileRequest::parse(&body[HEAD_BYTES..]), Err(Malformed));
    }

    #[test]
    fn another_version_and_a_body_too_long_are_refused() {
        let mut head: [u8; HEAD_BYTES] = bytes(&request())[..HEAD_BYTES].try_into().unwrap();
        head[3] += 1;
        assert_eq!(CompileRequest::body_bytes(&head), Err(Malformed));
        head[3] -= 1;
        head[4..].copy_from_slice(&(8u32 << 20).to_ne_bytes());
        assert_eq!(CompileRequest::body_bytes(&head), Ok(8 << 20));
        head[4..].copy_from_slice(&((8u32 << 20) + 1).to_ne_bytes());
        assert_eq!(CompileRequest::body_bytes(&head), Err(Malformed));
    }

    #[test]
    fn a_reply_announces_its_texts() {
        let mut out = Vec::new();
        let reply = Reply::Done { status: 256, stdout: b"out".to_vec(), stderr: b"error".to_vec() };
        reply.emit(&mut out);
        let (head, texts) = out.split_first_chunk().unwrap();
        let empty = Reply::Done { status: 256, stdout: vec![0; 3], stderr: vec![0; 5] };
        assert_eq!(Reply::parse_head(head), Ok(empty));
        assert_eq!(texts, b"outerror");
        out.clear();
        Reply::Preprocess { words: b"-E\0".to_vec(), beside: Vec::new() }.emit(&mut out);
        let empty = Reply::Preprocess { words: vec![0; 3], beside: Vec::new() };
        assert_eq!(Reply::parse_head(out[..REPLY_BYTES].try_into().unwrap()), Ok(empty));
        out.clear();
        let home = Reply::Local { why: Vec::new() };
        home.emit(&mut out);
        assert_eq!(Reply::parse_head(out[..].try_into().unwrap()), Ok(home));
        out[0] = 9;
        assert_eq!(Reply::parse_head(out[..].try_into().unwrap()), Err(Malformed));
    }

    #[test]
    fn variables_are_chosen_by_name_or_start() {
        for name in ["LANG", "LC_ALL", "GCC_COLORS", "PWD", "SOURCE_DATE_EPOCH"] {
            assert!(is_wanted(OsStr::new(name)), "{name}");
        }
        for name in ["LANGX", "HOME", "PATHS", "AWS_SECRET", "XLC_ALL", ""] {
            assert!(!is_wanted(OsStr::new(name)), "{name}");
        }
    }
}
