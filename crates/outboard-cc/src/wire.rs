//! What wrapper and manager say to each other: one request, one reply, in this machine's byte
//! order.
//!
//! Both come from one build and one user, but `parse` trusts neither length nor count: a request
//! has at most [`REQUEST_OCTETS_MAX`] octets.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// First word of a request; another one is another version.
const MAGIC: u32 = u32::from_le_bytes(*b"occ1");
/// Octets before a request's body: the magic and the body's length.
pub const HEAD_OCTETS: usize = 8;
/// Octets of a reply before its texts.
pub const REPLY_OCTETS: usize = 16;
/// Octets of a request's body. Linux gives a program at most 6 MiB of words.
pub const REQUEST_OCTETS_MAX: usize = 8 << 20;

const TERMINAL: u32 = 1;
const HOME: u32 = 0;
const DONE: u32 = 1;
const PREPROCESS: u32 = 2;

/// The variable that says how a job is handed over: `pull`, `preprocess` or `preprocess-disk`.
pub const MODE: &str = "OUTBOARD_CC_MODE";

/// Variables that compilers look at, by name, or by how the name starts where a `*` ends it. Others
/// stay where they are.
pub const VARIABLES: &[&str] = &[
    "CCC_*",
    "CLANG_*",
    "CLICOLOR*",
    "COLLECT_*",
    "COLUMNS",
    "COMPILER_PATH",
    "CPATH",
    "CPLUS_INCLUDE_PATH",
    "C_INCLUDE_PATH",
    "DEPENDENCIES_OUTPUT",
    "GCC_*",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "NO_COLOR",
    "OBJCPLUS_INCLUDE_PATH",
    "OBJC_INCLUDE_PATH",
    MODE,
    "PATH",
    "PWD",
    "SDKROOT",
    "SOURCE_DATE_EPOCH",
    "SUNPRO_DEPENDENCIES",
    "TERM",
    "TERM_URLS",
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
pub struct Request {
    /// The real compiler.
    pub compiler: OsString,
    /// Its words, its own name first.
    pub argv: Vec<OsString>,
    /// Where it was called.
    pub cwd: OsString,
    /// The variables that [`is_wanted`] wants.
    pub env: Vec<(OsString, OsString)>,
    /// The file mode creation mask.
    pub umask: u32,
    /// Standard error is a terminal.
    pub terminal: bool,
}

/// Whose octets made no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl Request {
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
        let body = length(out.len() - start - HEAD_OCTETS);
        out[start + 4..start + 8].copy_from_slice(&body.to_ne_bytes());
    }

    /// The length of the body behind a head.
    ///
    /// # Errors
    /// The head is another version's, or the body too long.
    pub fn body_octets(head: &[u8; HEAD_OCTETS]) -> Result<usize, Malformed> {
        let mut fields = Fields(head);
        let (magic, octets) = (fields.word()?, fields.word()? as usize);
        if magic == MAGIC && octets <= REQUEST_OCTETS_MAX { Ok(octets) } else { Err(Malformed) }
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

/// What the manager answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Become the compiler; the connection is the token of a local slot and stays open until the
    /// compiler has ended.
    Home,
    /// Run the compiler with these words, which preprocess to standard output, and hand the file
    /// over with one octet; another reply follows. The connection is a slot's token meanwhile.
    /// When that fails, become the compiler: the slot is its own.
    Preprocess {
        /// The words after the compiler's own, each with a zero octet behind it.
        words: Vec<u8>,
        /// The directory for a file on its disk; empty for a file in memory.
        beside: Vec<u8>,
    },
    /// The compiler ran elsewhere; its outputs are in place.
    Done {
        /// As wait(2) encodes it.
        status: i32,
        /// What it wrote to standard output.
        stdout: Vec<u8>,
        /// What it wrote to standard error.
        stderr: Vec<u8>,
    },
}

impl Reply {
    /// Writes the reply.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let (kind, status, texts): (u32, i32, [&[u8]; 2]) = match self {
            Self::Home => (HOME, 0, [&[], &[]]),
            Self::Preprocess { words, beside } => (PREPROCESS, 0, [words, beside]),
            Self::Done { status, stdout, stderr } => (DONE, *status, [stdout, stderr]),
        };
        put(out, kind);
        out.extend_from_slice(&status.to_ne_bytes());
        texts.iter().for_each(|text| put(out, length(text.len())));
        texts.iter().for_each(|text| out.extend_from_slice(text));
    }

    /// Reads a reply's head: the reply with texts as long as announced, still to be read into.
    ///
    /// # Errors
    /// It is no reply.
    pub fn parse_head(head: &[u8; REPLY_OCTETS]) -> Result<Self, Malformed> {
        let mut fields = Fields(head);
        let (kind, status) = (fields.word()?, fields.word()?.cast_signed());
        let mut text = || Ok(vec![0; fields.word()? as usize]);
        match kind {
            HOME => Ok(Self::Home),
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

/// Longer ones make a body that is too long, which the other side refuses.
fn length(octets: usize) -> u32 {
    u32::try_from(octets).unwrap_or(u32::MAX)
}

struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn word(&mut self) -> Result<u32, Malformed> {
        let (word, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(u32::from_ne_bytes(*word))
    }

    fn text(&mut self) -> Result<OsString, Malformed> {
        let octets = self.word()? as usize;
        let (text, rest) = self.0.split_at_checked(octets).ok_or(Malformed)?;
        self.0 = rest;
        Ok(OsString::from_vec(text.to_vec()))
    }

    fn many<T>(
        &mut self,
        one: impl Fn(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        // Nothing is reserved: a count may promise more than there is.
        (0..self.word()?).map(|_| one(self)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Request {
        Request {
            compiler: "/usr/bin/gcc".into(),
            argv: vec!["gcc".into(), "-c".into(), OsString::from_vec(vec![0xff, b'\n'])],
            cwd: "/a b".into(),
            env: vec![("LANG".into(), "C".into()), ("PWD".into(), "".into())],
            umask: 0o27,
            terminal: true,
        }
    }

    fn octets(request: &Request) -> Vec<u8> {
        let mut out = Vec::new();
        request.emit(&mut out);
        out
    }

    #[test]
    fn a_request_comes_out_as_it_went_in() {
        let all = octets(&request());
        let (head, body) = all.split_first_chunk().unwrap();
        assert_eq!(Request::body_octets(head), Ok(body.len()));
        assert_eq!(Request::parse(body), Ok(request()));
    }

    #[test]
    fn whatever_is_cut_off_or_appended_is_malformed() {
        let all = octets(&request());
        let body = &all[HEAD_OCTETS..];
        for end in 0..body.len() {
            assert_eq!(Request::parse(&body[..end]), Err(Malformed), "{end}");
        }
        assert_eq!(Request::parse(&[body, b"x"].concat()), Err(Malformed));
    }

    #[test]
    fn a_huge_count_reserves_nothing() {
        let mut body = octets(&Request { argv: vec![], env: vec![], ..request() });
        let at = body.len() - 8;
        body[at..at + 4].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(Request::parse(&body[HEAD_OCTETS..]), Err(Malformed));
    }

    #[test]
    fn another_version_and_a_body_too_long_are_refused() {
        let mut head: [u8; HEAD_OCTETS] = octets(&request())[..HEAD_OCTETS].try_into().unwrap();
        head[3] += 1;
        assert_eq!(Request::body_octets(&head), Err(Malformed));
        head[3] -= 1;
        head[4..].copy_from_slice(&(8u32 << 20).to_ne_bytes());
        assert_eq!(Request::body_octets(&head), Ok(8 << 20));
        head[4..].copy_from_slice(&((8u32 << 20) + 1).to_ne_bytes());
        assert_eq!(Request::body_octets(&head), Err(Malformed));
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
        assert_eq!(Reply::parse_head(out[..REPLY_OCTETS].try_into().unwrap()), Ok(empty));
        out.clear();
        Reply::Home.emit(&mut out);
        assert_eq!(Reply::parse_head(out[..].try_into().unwrap()), Ok(Reply::Home));
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
