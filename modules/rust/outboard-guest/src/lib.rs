//! Modules of Outboard's active code in Rust: what `modules/include/outboard.h` is for C.
//!
//! A module is executed next to a region, the memory of a node that clients reach by RDMA. It is
//! all or nothing, is run again when another execution has committed meanwhile, and sees one moment
//! of time; the C header's first page says what is checked at commit, and what is not. There is no
//! standard library and no heap.
//!
//! In reading order: [`entry!`] makes a function callable, [`Args`] are what it is called with,
//! [`Answer`] what it returns, [`region`] the memory it works on, [`call`] what else it knows.
#![no_std]

pub mod call;
mod host;
pub mod region;

pub use call::Args;

/// Why an execution fails: the application's own error. Nothing that it wrote is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The module's code.
    pub code: i32,
    /// Words for people; 1024 bytes at most.
    pub text: &'static str,
}

impl Failure {
    /// A failure.
    #[must_use]
    pub const fn new(code: i32, text: &'static str) -> Self {
        Self { code, text }
    }
}

/// The arguments are shorter than the entry needs.
pub const ARGS: Failure = Failure::new(1, "the arguments are shorter than this entry needs");
/// The result is longer than the caller takes.
pub const RESULT: Failure = Failure::new(2, "the caller has no room for the result");

/// The code of an execution that ended in a panic.
pub const PANIC: i32 = 3;

/// What an entry can return.
pub trait Answer {
    /// Puts it where the result goes; how many bytes it has.
    ///
    /// # Errors
    /// [`RESULT`].
    fn put(&self, into: &mut [u8]) -> Result<usize, Failure>;
}

impl Answer for () {
    fn put(&self, _: &mut [u8]) -> Result<usize, Failure> {
        Ok(0)
    }
}

impl Answer for [u8] {
    fn put(&self, into: &mut [u8]) -> Result<usize, Failure> {
        into.get_mut(..self.len()).ok_or(RESULT)?.copy_from_slice(self);
        Ok(self.len())
    }
}

impl<const N: usize> Answer for [u8; N] {
    fn put(&self, into: &mut [u8]) -> Result<usize, Failure> {
        self[..].put(into)
    }
}

impl Answer for u64 {
    fn put(&self, into: &mut [u8]) -> Result<usize, Failure> {
        self.to_le_bytes().put(into)
    }
}

impl<A: Answer, B: Answer> Answer for (A, B) {
    fn put(&self, into: &mut [u8]) -> Result<usize, Failure> {
        let first = self.0.put(into)?;
        Ok(first + self.1.put(into.get_mut(first..).ok_or(RESULT)?)?)
    }
}

/// Makes a function an entry, which requests can name: `entry!(add, add)` exports the function
/// `add`, of the type `fn(&mut Args) -> Result<impl Answer, Failure>`.
#[macro_export]
macro_rules! entry {
    ($name:ident, $function:expr) => {
        const _: () = {
            #[export_name = stringify!($name)]
            extern "C" fn entry() -> i64 {
                $crate::run($function)
            }
        };
    };
}

/// Runs an entry's function: what [`entry!`] makes calls it.
pub fn run<A: Answer>(function: impl FnOnce(&mut Args) -> Result<A, Failure>) -> i64 {
    let answer = function(&mut Args::of_call());
    let len = answer.and_then(|answer| answer.put(call::out()));
    match len {
        Ok(len) => i64::try_from(len).unwrap_or(i64::MAX),
        Err(failure) => call::fail(failure.code, failure.text.as_bytes()),
    }
}

#[cfg(target_arch = "wasm32")]
#[panic_handler]
fn panicked(info: &core::panic::PanicInfo<'_>) -> ! {
    let mut text = [0; 200];
    let mut len = 0;
    let mut say = |bytes: &[u8]| {
        for (to, from) in text[len..].iter_mut().zip(bytes) {
            *to = *from;
            len += 1;
        }
    };
    say(b"panicked at ");
    if let Some(location) = info.location() {
        say(location.file().as_bytes());
        let (mut digits, mut at, mut line) = ([b'0'; 10], 10, location.line());
        while line > 0 {
            at -= 1;
            digits[at] += (line % 10) as u8;
            line /= 10;
        }
        say(b":");
        say(&digits[at..]);
    }
    call::fail(PANIC, &text[..len])
}
