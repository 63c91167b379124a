//! Layouts and constants are those of the modules' headers; what comes from outside is parsed
//! without trust.

use super::*;
use outboard_cluster::hub::Exposed;
use std::fs;
use std::path::Path;

fn header(module: &str) -> String {
    let headers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../modules");
    let path = headers.join(module).join(module).with_extension("h");
    fs::read_to_string(&path).expect("a header")
}

/// The number that a text is, as C writes it.
fn number(text: &str) -> u64 {
    let text = text.replace("(uint64_t)", "").replace(['(', ')', ' '], "");
    if let Some((left, right)) = text.split_once("<<") {
        return number(left) << number(right);
    }
    let digits = text.trim_end_matches('u');
    let parsed = match digits.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => digits.parse(),
    };
    parsed.expect(digits)
}

/// What a header defines a name as: by `#define`, or in an enum.
fn defined(module: &str, name: &str) -> u64 {
    let header = header(module);
    for line in header.lines() {
        if let Some((known, value)) =
            line.strip_prefix("#define ").and_then(|rest| rest.split_once(' '))
            && known == name
        {
            return number(value.split("/*").next().expect("a value"));
        }
        if let Some((known, value)) = line.trim().split_once(" = ")
            && known == name
        {
            return number(value.split(',').next().expect("a value"));
        }
    }
    panic!("{module}.h does not define {name}")
}

/// The members of a structure, with those of the structures in it, and their sizes.
fn declared(headers: &str, of: &str, name: &str, out: &mut Vec<(String, usize)>) {
    let begin = format!("struct {of} {{");
    let at = headers.find(&begin).unwrap_or_else(|| panic!("no struct {of}")) + begin.len();
    let body = headers[at..].split('}').next().expect("an end");
    let mut text = String::new();
    for part in body.split("/*") {
        text.push_str(part.split_once("*/").map_or(part, |(_, behind)| behind));
    }
    for declaration in text.split(';').map(str::trim).filter(|one| !one.is_empty()) {
        let (kind, members) = match declaration.strip_prefix("struct ") {
            Some(rest) => rest.split_once(' ').expect("members"),
            None => declaration.split_once(' ').expect("members"),
        };
        for member in members.split(',').map(str::trim) {
            let (member, count) = match member.split_once('[') {
                Some((member, count)) => match count.trim_end_matches(']').parse() {
                    Ok(count) => (member, count),
                    Err(_) => (member, RECORD_ENTRIES),
                },
                None => (member, 0),
            };
            let each = |name: &str, out: &mut Vec<(String, usize)>| match kind {
                "uint16_t" => out.push((name.into(), 2)),
                "uint32_t" => out.push((name.into(), 4)),
                "uint64_t" | "int64_t" => out.push((name.into(), 8)),
                inner => declared(headers, inner, name, out),
            };
            let name = format!("{name}.{member}");
            match count {
                0 => each(&name, out),
                _ => (0..count).for_each(|at| each(&format!("{name}[{at}]"), out)),
            }
        }
    }
}

fn is_as_declared<T: FsLayout>(name: &str) {
    let headers = header("fs") + &header("inode") + &header("blocks");
    let (mut theirs, mut ours) = (Vec::new(), Vec::new());
    declared(&headers, name, name, &mut theirs);
    T::members(name, &mut ours);
    assert_eq!(ours, theirs);
    let mut at = 0;
    for (member, size) in &ours {
        assert_eq!(at % size, 0, "C has a gap before {member}");
        at += size;
    }
    assert_eq!(at, T::LEN);
    let bytes: Vec<u8> = (0..at).map(|at| (at * 7).to_le_bytes()[0]).collect();
    let (value, rest) = T::split(&bytes).expect("as many bytes");
    assert_eq!((value.bytes(), rest), (bytes.clone(), &b""[..]));
    assert!(T::split(&bytes[1..]).is_none());
}

#[test]
fn the_layouts_are_those_of_the_headers() {
    is_as_declared::<FsWho>("fs_who");
    is_as_declared::<FsInode>("fs_inode");
    is_as_declared::<FsRecord>("inode");
    is_as_declared::<FsExtent>("inode_extent");
    is_as_declared::<FsAnswer>("fs_answer");
    is_as_declared::<FsInitArgs>("fs_init_args");
    is_as_declared::<FsInodeArgs>("fs_inode_args");
    is_as_declared::<FsNameArgs>("fs_name_args");
    is_as_declared::<FsMakeArgs>("fs_make_args");
    is_as_declared::<FsLinkArgs>("fs_link_args");
    is_as_declared::<FsRenameArgs>("fs_rename_args");
    is_as_declared::<FsAttrArgs>("fs_attr_args");
    is_as_declared::<FsListArgs>("fs_list_args");
    is_as_declared::<FsListed>("fs_listed");
    is_as_declared::<FsStats>("fs_stats");
    is_as_declared::<FsUnlinkArgs>("fs_unlink_args");
    is_as_declared::<FsRemoved>("fs_removed");
    is_as_declared::<FsWalkArgs>("fs_walk_args");
    is_as_declared::<FsWalked>("fs_walked");
    is_as_declared::<FsAccessArgs>("fs_access_args");
    is_as_declared::<FsOrphansArgs>("fs_orphans_args");
    is_as_declared::<FsOrphan>("fs_orphan");
    is_as_declared::<FsTakeArgs>("fs_take_args");
    is_as_declared::<FsSweepArgs>("fs_sweep_args");
    is_as_declared::<FsBlocksRun>("blocks_run");
    is_as_declared::<FsReadArgs>("fs_read_args");
    is_as_declared::<FsSeekArgs>("fs_seek_args");
    is_as_declared::<FsMapArgs>("fs_change_args");
    is_as_declared::<FsShareArgs>("fs_share_args");
    is_as_declared::<FsXattrArgs>("fs_xattr_args");
    is_as_declared::<FsTenant>("fs_tenant");
    is_as_declared::<FsQuotaArgs>("fs_quota_args");
    is_as_declared::<FsTenantsArgs>("fs_tenants_args");
}

#[test]
fn the_constants_are_those_of_the_headers() {
    let failure = |code: i32| u64::try_from(code).expect("positive");
    for (module, name, ours) in [
        ("fs", "FS_MAGIC", MAGIC),
        ("fs", "FS_ROOT", ROOT),
        ("fs", "FS_ERRNO", failure(ERRNO)),
        ("fs", "FS_NOBODY", NOBODY.into()),
        ("fs", "FS_TARGET_MAX", TARGET_MAX as u64),
        ("fs", "FS_SQUASH_ROOT", SQUASH_ROOT),
        ("fs", "FS_NOREPLACE", NOREPLACE.into()),
        ("fs", "FS_EXCHANGE", EXCHANGE.into()),
        ("fs", "FS_MODE", SET_MODE.into()),
        ("fs", "FS_UID", SET_UID.into()),
        ("fs", "FS_GID", SET_GID.into()),
        ("fs", "FS_ATIME", SET_ATIME.into()),
        ("fs", "FS_MTIME", SET_MTIME.into()),
        ("fs", "FS_ATIME_NOW", SET_ATIME_NOW.into()),
        ("fs", "FS_MTIME_NOW", SET_MTIME_NOW.into()),
        ("fs", "FS_HOLD", HOLD.into()),
        ("fs", "FS_GROW", GROW.into()),
        ("fs", "FS_RESIZE", RESIZE.into()),
        ("fs", "FS_KEEP_TIMES", KEEP_TIMES.into()),
        ("fs", "FS_SET", SET.into()),
        ("fs", "FS_UNLINK_MAX", UNLINK_MAX as u64),
        ("fs", "FS_MAY_EXECUTE", MAY_EXECUTE.into()),
        ("fs", "FS_MAY_WRITE", MAY_WRITE.into()),
        ("fs", "FS_MAY_READ", MAY_READ.into()),
        ("fs", "FS_SEEK_DATA", SEEK_DATA),
        ("fs", "FS_SEEK_HOLE", SEEK_HOLE),
        ("fs", "FS_XATTR_CREATE", XATTR_CREATE.into()),
        ("fs", "FS_XATTR_REPLACE", XATTR_REPLACE.into()),
        ("fs", "FS_XATTR_VALUE_MAX", XATTR_VALUE_MAX as u64),
        ("fs", "FS_XATTRS_MAX", XATTRS_MAX as u64),
        ("fs", "FS_WALK_MAX", WALK_MAX as u64),
        ("fs", "FS_GROUPS_MAX", GROUPS_MAX as u64),
        ("fs", "FS_SIZE_MAX", SIZE_MAX),
        ("names", "NAMES_MAX", NAME_MAX as u64),
        ("inode", "INODE_BLOCK_LEN", BLOCK_LEN),
        ("inode", "INODE_ROOT_ENTRIES", RECORD_ENTRIES as u64),
        ("alloc", "ALLOC_E_FULL", failure(ALLOC_FULL)),
        ("table", "TABLE_E_FULL", failure(TABLE_FULL)),
        ("blocks", "BLOCKS_E_FULL", failure(BLOCKS_FULL)),
        ("blocks", "BLOCKS_E_USERS", failure(BLOCKS_USERS)),
        ("inode", "INODE_E_NONE", failure(INODE_NONE)),
        ("inode", "INODE_E_FULL", failure(INODE_FULL)),
        ("inode", "INODE_E_RANGE", failure(INODE_RANGE)),
        ("names", "NAMES_E_FULL", failure(NAMES_FULL)),
    ] {
        assert_eq!(defined(module, name), ours, "{name}");
    }
}

#[test]
fn failures_are_error_numbers_of_linux() {
    for (code, errno) in [
        (1002, libc::ENOENT),
        (1116, libc::ESTALE),
        (NAMES_FULL, libc::ENOSPC),
        (INODE_FULL, libc::ENOSPC),
        (BLOCKS_FULL, libc::ENOSPC),
        (INODE_RANGE, libc::EFBIG),
        (1000, libc::EIO),
        (1134, libc::EIO),
        (i32::MAX, libc::EIO),
        (i32::MIN, libc::EIO),
        (-1, libc::EIO),
    ] {
        assert_eq!(errno_of_failure(code), errno, "{code}");
    }
    assert_eq!(errno_of_failure(failure_of_errno(libc::EXDEV)), libc::EXDEV);
    assert_eq!(errno_of_failure(MEMORY_GONE), libc::EFAULT);
}

fn listed(next: u64, name: &[u8]) -> Vec<u8> {
    let inode = FsInode { number: 5, generation: 1 };
    let name_len = u32::try_from(name.len()).expect("short");
    let mut bytes = FsListed { next, name_len, inode, ..FsListed::default() }.bytes();
    bytes.extend_from_slice(name);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

#[test]
fn names_that_no_directory_has_are_no_answer() {
    let good = [listed(16, b"a"), listed(48, &[0xff; 255])].concat();
    let names = parse_list(&good, 0).expect("an answer");
    assert_eq!(names.iter().map(|one| one.name.len()).collect::<Vec<_>>(), [1, 255]);
    for bad in [&b""[..], b"a/b", b"a\0b", b".", b"..", &[b'a'; 256]] {
        assert!(parse_list(&listed(16, bad), 0).is_none(), "{bad:?}");
    }
    assert!(parse_list(&good, 16).is_none(), "a place that does not grow");
    assert!(parse_list(&good[..good.len() - 1], 0).is_none());
    let mut long = listed(16, b"a");
    long[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(parse_list(&long, 0).is_none());
}

#[test]
fn a_walk_says_what_it_found_and_why_not_more() {
    let answer = |count, error, found: usize| {
        [FsWalked { count, error }.bytes(), vec![0; found * FsAnswer::LEN]].concat()
    };
    let walked = parse_walk(&answer(1, 2, 1), 2).expect("an answer");
    assert_eq!((walked.0.len(), walked.1), (1, 2));
    assert!(parse_walk(&answer(2, 0, 2), 2).is_some());
    for (bad, names) in [
        (answer(3, 0, 3), 2),
        (answer(1, 0, 1), 2),
        (answer(2, 2, 2), 2),
        (answer(2, 0, 1), 2),
        (answer(1, 2, 2), 2),
        (answer(1, 4000, 1), 2),
        (vec![1], 1),
    ] {
        assert!(parse_walk(&bad, names).is_none());
    }
}

/// Memory as a peer would name it.
fn memory(len: u64) -> Exposed {
    let bytes = postcard::to_stdvec(&(7_u32, 4096_u64, len)).expect("numbers");
    postcard::from_bytes(&bytes).expect("memory")
}

#[test]
fn a_change_has_as_many_bytes_as_it_says() {
    let change = |which, size| FsChangeArgs { which, size, ..FsChangeArgs::default() };
    let here = change(APPEND, 3).with(FsSource::Here(b"abc"));
    assert_eq!(FsChangeArgs::parse(&here), Some((change(APPEND, 3), FsSource::Here(b"abc"))));
    assert_eq!(FsChangeArgs::parse(&here[..here.len() - 1]), None);
    let there = change(0, 1 << 20).with(FsSource::Memory(memory(1 << 20)));
    let (parsed, source) = FsChangeArgs::parse(&there).expect("a change");
    assert_eq!((parsed.source, source), (FROM_MEMORY, FsSource::Memory(memory(1 << 20))));
    let other = change(0, 1 << 20).with(FsSource::Memory(memory(1 << 19)));
    assert_eq!(FsChangeArgs::parse(&other), None);
    let hole = change(PUNCH, 1 << 40).with(FsSource::Here(b""));
    assert!(FsChangeArgs::parse(&hole).is_some());
    let unknown = FsChangeArgs { source: 2, ..change(0, 0) }.bytes();
    assert_eq!(FsChangeArgs::parse(&unknown), None);
    assert_eq!(FsChangeArgs::parse(b"short"), None);
}

#[test]
fn notes_are_what_they_were() {
    let inode = FsInode { number: 7, generation: 3 };
    let note = FsNote::Opened { opening: 3, inode, maps: true };
    assert_eq!(FsNote::decode(&note.encode()), Ok(note));
    let notice = FsNotice::Invalidate { number: 1, inode, what: StalePart::Names };
    assert_eq!(FsNotice::decode(&notice.encode()), Ok(notice.clone()));
    assert!(FsNotice::decode(&notice.encode()[..5]).is_err());
}

#[test]
fn places_are_those_of_the_headers() {
    use places::*;
    for (module, name, ours) in [
        ("table", "TABLE_MAGIC", TABLE_MAGIC),
        ("table", "TABLE_SEED", TABLE_SEED),
        ("table", "TABLE_HEADER_LEN", TABLE_HEADER_LEN),
        ("table", "TABLE_BUCKET_LEN", TABLE_BUCKET_LEN),
        ("table", "TABLE_SLOTS", TABLE_SLOTS as u64),
        ("table", "TABLE_CELL_LEN", TABLE_CELL_LEN as u64),
        ("table", "TABLE_SEGMENTS", TABLE_SEGMENTS),
        ("inode", "INODE_MAGIC", INODE_MAGIC),
        ("inode", "INODE_HEADER_LEN", INODE_HEADER_LEN),
        ("inode", "INODE_SEGMENTS", INODE_SEGMENTS as u64),
        ("names", "NAMES_DIR_LEN", NAMES_DIR_LEN),
        ("names", "NAMES_SEGMENTS", NAMES_SEGMENTS as u64),
        ("names", "NAMES_FIRST_LEN", NAMES_FIRST_LEN),
        ("names", "NAMES_VALUE_LEN", NAMES_VALUE_LEN as u64),
    ] {
        assert_eq!(ours, defined(module, name), "{name}");
    }
}
