//! The terminal: switches to the alternate screen, reads keys as they are typed, and restores
//! everything at the end.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use std::io::{self, Read, Write, stdin, stdout};
use std::time::Duration;

/// Switch to the alternate screen without a cursor; and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// Go to the first line; clear the rest of a line; clear the rest of the page.
const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_REST: &str = "\x1b[J";
/// The size of a terminal that does not report it.
const SIZE: (u16, u16) = (80, 24);

/// See the [module](self).
pub(super) struct Screen {
    before: Termios,
}

impl Screen {
    pub(super) fn new() -> io::Result<Self> {
        let before = tcgetattr(stdin())?;
        let mut raw = before.clone();
        // Ctrl-C stays a signal.
        raw.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        tcsetattr(stdin(), OptionalActions::Now, &raw)?;
        let screen = Self { before };
        print(ENTER)?;
        Ok(screen)
    }

    /// As much of it as there is room for.
    pub(super) fn show(&mut self, lines: &[String]) -> io::Result<()> {
        let size = tcgetwinsize(stdout()).map_or(SIZE, |size| (size.ws_col, size.ws_row));
        let (columns, rows) = if size.0 == 0 || size.1 == 0 { SIZE } else { size };
        let mut page = HOME.to_owned();
        let rows = usize::from(rows);
        let shown = if lines.len() > rows { rows.saturating_sub(1) } else { rows };
        let cut = |line: &String| line.chars().take(columns.into()).collect::<String>();
        let mut all: Vec<String> = lines.iter().take(shown).map(cut).collect();
        if lines.len() > rows {
            all.push("more lines than rows: make the window larger".to_owned());
        }
        page += &all.join(&format!("{CLEAR_LINE}\r\n"));
        page += CLEAR_LINE;
        page += CLEAR_REST;
        print(&page)
    }

    /// Whether `q` was typed within a time.
    pub(super) fn wants_to_quit(&self, within: Duration) -> io::Result<bool> {
        let limit = Timespec::try_from(within).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&stdin(), PollFlags::IN)], Some(&limit)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(false),
            polled => polled?,
        };
        let mut keys = [0; 64];
        let count = stdin().lock().read(&mut keys)?;
        // A terminal that is gone has no input.
        Ok(count == 0 || keys[..count].iter().any(|key| matches!(key, b'q' | b'Q')))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone need not be restored.
        let _ = print(LEAVE);
        let _ = tcsetattr(stdin(), OptionalActions::Now, &self.before);
    }
}

fn print(text: &str) -> io::Result<()> {
    let mut out = stdout().lock();
    write!(out, "{text}").and_then(|()| out.flush())
}
