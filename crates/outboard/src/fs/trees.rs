//! `outboard fs find`, `count`, `du` and `rm`: whole trees, looked at next to them.

use super::at::{FoundPlace, FsServers};
use crate::Outcome;
use clap::Args;
use outboard_fs::protocol::{BLOCK_LEN, FindSums, seconds_of};
use outboard_fs::tools::{
    self, FindAction, FindExpression, FindMoment, FindTeller, FindTold, ToldError, ToldFailure,
    ToolError, UsageLine, UsageSeen, UsageTeller, errno_words, quoted,
};
use serde_json::{Value, json};
use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::io::{BufWriter, ErrorKind, StdoutLock, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::time::SystemTime;

/// Bytes of a line that are written together.
const WRITTEN_TOGETHER: usize = 64 << 10;

/// Find names in a tree at its server, as find(1) does, some thousand with each request.
///
/// Paths are HOST:/path, or paths in a mount. Of find's expressions it knows: ( ) ! -not -a -o ,
/// -name -iname -path -ipath -lname -ilname -type -size -empty -perm -user -group -uid -gid -links
/// -inum -atime -mtime -ctime -amin -mmin -cmin -newer -anewer -cnewer -newerXY -readable -writable
/// -executable -true -false -maxdepth -mindepth -depth -prune -quit -print -print0 -delete.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard fs find shared -name '*.c' -size +10k
  outboard fs find n01:/ -type d -empty -delete")]
pub(crate) struct FindArgs {
    /// A line of JSON for each name.
    #[arg(long)]
    json: bool,
    /// Paths, then an expression.
    #[arg(allow_hyphen_values = true, trailing_var_arg = true)]
    words: Vec<OsString>,
}

/// Count what is in a tree, at its server: files, directories, symbolic links, others, bytes.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard fs count shared -name '*.o'")]
pub(crate) struct CountArgs {
    /// As JSON.
    #[arg(long)]
    json: bool,
    /// Paths, then an expression as of `outboard fs find`.
    #[arg(allow_hyphen_values = true, trailing_var_arg = true)]
    words: Vec<OsString>,
}

/// Show how much room trees take, as du(1) does, added up at the server.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:
  outboard fs du -s shared
  outboard fs du --bytes -d 1 n01:/",
    disable_help_flag = true
)]
pub(crate) struct DuArgs {
    /// Only of each path.
    #[arg(short, long)]
    summarize: bool,
    /// Of directories so deep, at most.
    #[arg(short = 'd', long, value_name = "DEPTH", conflicts_with = "summarize")]
    max_depth: Option<u32>,
    /// Of all together as well.
    #[arg(short = 'c', long)]
    total: bool,
    /// Bytes that files have, not what they take.
    #[arg(long)]
    apparent_size: bool,
    /// Bytes that files have, in bytes.
    #[arg(short = 'b', long)]
    bytes: bool,
    /// In MiB.
    #[arg(short = 'm', conflicts_with_all = ["bytes", "human_readable"])]
    mebibytes: bool,
    /// In K, M, G.
    #[arg(short = 'h', long, conflicts_with = "bytes")]
    human_readable: bool,
    /// Files with several names with each of them.
    #[arg(short = 'l', long)]
    count_links: bool,
    /// Inodes, not bytes.
    #[arg(long)]
    inodes: bool,
    /// Lines end with a byte of 0.
    #[arg(short = '0', long)]
    null: bool,
    /// A line of JSON for each.
    #[arg(long)]
    json: bool,
    /// Print help.
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// HOST:/path, or paths in a mount.
    #[arg(default_value = ".")]
    paths: Vec<OsString>,
}

/// Remove names, with -r whole trees, at their server.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard fs rm -r shared/build")]
pub(crate) struct RmArgs {
    /// Directories, with all that is in them.
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// What is not there is no error.
    #[arg(short, long)]
    force: bool,
    /// HOST:/path, or paths in a mount.
    #[arg(required = true)]
    paths: Vec<OsString>,
}

/// Standard output, and whether anything has failed.
pub(super) struct Printer {
    pub(super) out: BufWriter<StdoutLock<'static>>,
    /// Nobody reads what is printed any more.
    pub(super) is_closed: bool,
}

impl Printer {
    pub(super) fn new() -> Self {
        let out = BufWriter::with_capacity(WRITTEN_TOGETHER, std::io::stdout().lock());
        Self { out, is_closed: false }
    }

    pub(super) fn put(&mut self, parts: &[&[u8]]) -> Result<(), ToolError> {
        let mut parts = parts.iter();
        let put = parts.try_for_each(|part| self.out.write_all(part));
        self.is_closed |= matches!(&put, Err(error) if error.kind() == ErrorKind::BrokenPipe);
        Ok(put?)
    }

    pub(super) fn flush(&mut self) -> Result<(), ToolError> {
        Ok(self.out.flush()?)
    }

    pub(super) fn line(&mut self, value: &Value) -> Result<(), ToolError> {
        self.put(&[value.to_string().as_bytes(), b"\n"])
    }

    /// What a part of the command comes to: whether it has failed, which is told.
    pub(super) fn ended(&mut self, ended: Outcome) -> bool {
        let flushed = self.out.flush();
        self.is_closed |= matches!(&flushed, Err(error) if error.kind() == ErrorKind::BrokenPipe);
        match ended.and_then(|()| Ok(flushed?)) {
            Ok(()) => false,
            Err(_) if self.is_closed => false,
            Err(error) => {
                eprintln!("outboard: {error}");
                true
            }
        }
    }
}

pub(super) fn code(has_failed: bool) -> ExitCode {
    if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

pub(super) fn say(error: ToldError<'_>) {
    let (path, why) = (quoted(error.path), errno_words(error.errno));
    match error.what {
        ToldFailure::NotEntered | ToldFailure::NotRead => eprintln!("outboard: {path}: {why}"),
        ToldFailure::NotRemoved => eprintln!("outboard: cannot remove {path}: {why}"),
    }
}

pub(super) fn moment() -> FindMoment {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let now_ns = i64::try_from(now.as_nanos()).unwrap_or(i64::MAX);
    let value = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = value("LC_ALL").or_else(|| value("LC_CTYPE")).or_else(|| value("LANG"));
    let locale = locale.unwrap_or_default().to_lowercase();
    FindMoment { now_ns, is_utf8: locale.ends_with("utf-8") || locale.ends_with("utf8") }
}

pub(crate) fn find(args: &FindArgs) -> Result<ExitCode, Box<dyn Error>> {
    let expression = FindExpression::parse(&args.words, moment())?;
    let (mut servers, mut printer, mut has_failed) = (FsServers::default(), Printer::new(), false);
    for path in &expression.paths {
        let mut told = |told: &FindTold<'_>| match (told.action, args.json) {
            (FindAction::Delete, _) => Ok(()),
            (_, true) => printer.line(&described(told)),
            (FindAction::Print, false) => printer.put(&[told.path, b"\n"]),
            (FindAction::PrintZero, false) => printer.put(&[told.path, b"\0"]),
        };
        let mut failed = |error: ToldError<'_>| {
            has_failed = true;
            say(error);
        };
        let teller = FindTeller { told: &mut told, failed: &mut failed };
        let ended = servers.find(path).and_then(|found| {
            let FoundPlace { place, client, caller, root } = &found;
            Ok(tools::find(client, caller, (root, &place.shown), &expression, teller)?)
        });
        has_failed |= printer.ended(ended);
        if printer.is_closed {
            break;
        }
    }
    Ok(code(has_failed))
}

fn described(told: &FindTold<'_>) -> Value {
    let about = told.attributes;
    json!({
        "path": String::from_utf8_lossy(told.path),
        "type": kind_name(about.mode),
        "size": about.size,
        "blocks": about.blocks,
        "mode": format!("{:04o}", about.mode & 0o7777),
        "uid": about.uid,
        "gid": about.gid,
        "links": about.nlink,
        "inode": about.inode.number,
        "atime_ns": nanoseconds(about.atime_ns),
        "mtime_ns": nanoseconds(about.mtime_ns),
        "ctime_ns": nanoseconds(about.ctime_ns),
    })
}

/// Nanoseconds since 1970, which after 2262 are more than 2^63.
fn nanoseconds(time_ns: i64) -> Value {
    let (seconds, ns) = seconds_of(time_ns);
    let all = i128::from(seconds) * 1_000_000_000 + i128::from(ns);
    match u64::try_from(all) {
        Ok(after) => after.into(),
        Err(_) => time_ns.into(),
    }
}

fn kind_name(mode: u32) -> &'static str {
    match mode >> 12 & 15 {
        1 => "fifo",
        2 => "character device",
        4 => "directory",
        6 => "block device",
        8 => "file",
        10 => "symbolic link",
        12 => "socket",
        _ => "unknown",
    }
}

pub(crate) fn count(args: &CountArgs) -> Result<ExitCode, Box<dyn Error>> {
    let expression = FindExpression::parse(&args.words, moment())?;
    let (mut servers, mut printer, mut has_failed) = (FsServers::default(), Printer::new(), false);
    let mut all = FindSums::default();
    for path in &expression.paths {
        let mut failed = |error: ToldError<'_>| {
            has_failed = true;
            say(error);
        };
        let ended = servers.find(path).and_then(|found| {
            let FoundPlace { place, client, caller, root } = &found;
            let root = (root, &place.shown[..]);
            all.add(&tools::count(client, caller, root, &expression, &mut failed)?);
            Ok(())
        });
        has_failed |= printer.ended(ended);
    }
    let FindSums { files, directories, links, others, size, blocks } = all;
    let blocks = blocks.saturating_mul(BLOCK_LEN);
    let printed = match args.json {
        true => printer.line(&json!({
            "files": files,
            "directories": directories,
            "symbolic_links": links,
            "others": others,
            "bytes": size,
            "bytes_on_disk": blocks,
        })),
        false => printer.put(&[format!(
            "{files} files, {directories} directories, {links} symbolic links, {others} others, \
             {size} bytes\n"
        )
        .as_bytes()]),
    };
    has_failed |= printer.ended(printed.map_err(Into::into));
    Ok(code(has_failed))
}

pub(crate) fn du(args: &DuArgs) -> Result<ExitCode, Box<dyn Error>> {
    let (mut servers, mut printer, mut has_failed) = (FsServers::default(), Printer::new(), false);
    let depth = if args.summarize { 0 } else { args.max_depth.unwrap_or(u32::MAX) };
    let (mut seen, mut all) = (UsageSeen::default(), FindSums::default());
    for path in &args.paths {
        let mut told = |line: &UsageLine<'_>| args.print(&mut printer, line);
        let mut failed = |error: ToldError<'_>| {
            has_failed = true;
            say(error);
        };
        let teller = UsageTeller { told: &mut told, failed: &mut failed };
        let seen = (!args.count_links).then_some(&mut seen);
        let ended = servers.find(path).and_then(|found| {
            let FoundPlace { place, client, caller, root } = &found;
            let root = (root, &place.shown[..]);
            all.add(&tools::usage(client, caller, root, (depth, seen), teller)?);
            Ok(())
        });
        has_failed |= printer.ended(ended);
    }
    if args.total {
        let printed = args.print(&mut printer, &UsageLine { path: b"total", sums: all });
        has_failed |= printer.ended(printed.map_err(Into::into));
    }
    Ok(code(has_failed))
}

impl DuArgs {
    fn print(&self, printer: &mut Printer, line: &UsageLine<'_>) -> Result<(), ToolError> {
        let taken = line.sums.blocks.saturating_mul(BLOCK_LEN);
        if self.json {
            return printer.line(&json!({
                "path": String::from_utf8_lossy(line.path),
                "bytes": line.sums.size,
                "bytes_on_disk": taken,
                "inodes": line.sums.count(),
            }));
        }
        let bytes = if self.apparent_size || self.bytes { line.sums.size } else { taken };
        let number = match self {
            Self { inodes: true, .. } => line.sums.count().to_string(),
            Self { human_readable: true, .. } => human(bytes),
            Self { bytes: true, .. } => bytes.to_string(),
            Self { mebibytes: true, .. } => bytes.div_ceil(1 << 20).to_string(),
            _ => bytes.div_ceil(1 << 10).to_string(),
        };
        let end: &[u8] = if self.null { b"\0" } else { b"\n" };
        printer.put(&[number.as_bytes(), b"\t", line.path, end])
    }
}

/// Bytes as du shows them to people: two digits at least, rounded up.
fn human(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];
    let (mut unit, mut scale) = (0, 1_u64);
    while unit + 1 < UNITS.len() && bytes.div_ceil(scale) >= 1024 {
        unit += 1;
        scale <<= 10;
    }
    if unit == 0 {
        return bytes.to_string();
    }
    let tenths = (u128::from(bytes) * 10).div_ceil(u128::from(scale));
    match tenths < 100 {
        true => format!("{}.{}{}", tenths / 10, tenths % 10, UNITS[unit]),
        false => format!("{}{}", bytes.div_ceil(scale), UNITS[unit]),
    }
}

pub(crate) fn rm(args: &RmArgs) -> Result<ExitCode, Box<dyn Error>> {
    let (mut servers, mut printer, mut has_failed) = (FsServers::default(), Printer::new(), false);
    for path in &args.paths {
        let mut failed = |error: ToldError<'_>| {
            has_failed = true;
            say(error);
        };
        let ended = remove(&mut servers, path, args, &mut failed);
        has_failed |= printer.ended(ended);
    }
    Ok(code(has_failed))
}

fn remove(
    servers: &mut FsServers,
    path: &OsStr,
    args: &RmArgs,
    failed: &mut dyn FnMut(ToldError<'_>),
) -> Outcome {
    let last = path.as_bytes().rsplit(|byte| *byte == b'/').find(|name| !name.is_empty());
    if matches!(last, Some(b"." | b"..")) {
        let path = quoted(path.as_bytes());
        return Err(
            format!("{path}: neither . nor .. is removed: write the directory's path").into()
        );
    }
    let found = match servers.find(path) {
        Err(error) if args.force && is_absent(&*error) => return Ok(()),
        found => found?,
    };
    let FoundPlace { place, client, caller, root } = &found;
    let is_directory = root.found.record.mode >> 12 & 15 == 4;
    if is_directory && !args.recursive {
        let path = quoted(&place.shown);
        return Err(format!("{path} is a directory: write rm -r to remove it").into());
    }
    Ok(tools::remove_tree(client, caller, (root, &place.shown), failed)?)
}

/// Whether an error says that a path is not there.
fn is_absent(error: &(dyn Error + 'static)) -> bool {
    match error.downcast_ref() {
        Some(ToolError::Fs { error, .. }) => {
            error.errno() == rustix::io::Errno::NOENT.raw_os_error()
        }
        Some(ToolError::Path { why, .. }) => {
            *why == errno_words(rustix::io::Errno::NOENT.raw_os_error())
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people_are_rounded_up() {
        for (bytes, text) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1025, "1.1K"),
            (10 * 1024, "10K"),
            (10 * 1024 + 1, "11K"),
            (1023 * 1024 + 1, "1.0M"),
            (4 << 30, "4.0G"),
        ] {
            assert_eq!(human(bytes), text, "{bytes}");
        }
    }
}
