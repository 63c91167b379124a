//! The numbers of this crate's layouts are those of the modules' headers.

use outboard_active_apps::{expiry, list, lock, swap, table, topk};
use std::fs;
use std::path::Path;

/// What a header defines a name as.
fn defined(module: &str, name: &str) -> u64 {
    let headers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../modules");
    let path = headers.join(module).join(module).with_extension("h");
    let header = fs::read_to_string(&path).expect("a header");
    let line = header.lines().find_map(|line| line.strip_prefix("#define ")?.strip_prefix(name));
    let value = line.and_then(|rest| rest.split_whitespace().next()).expect(name);
    let digits = value.trim_end_matches('u');
    let parsed = match digits.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => digits.parse(),
    };
    parsed.expect(name)
}

#[test]
fn the_layouts_are_those_of_the_headers() {
    let as_word = |size: usize| size as u64;
    for (module, name, ours) in [
        ("list", "LIST_HEADER_LEN", list::layout::HEADER_LEN),
        ("list", "LIST_NODE_LEN", as_word(list::layout::NODE_LEN)),
        ("list", "LIST_VALUE_MAX", as_word(list::layout::VALUE_MAX)),
        ("list", "LIST_REMOVED", list::layout::REMOVED),
        ("table", "TABLE_MAGIC", table::layout::MAGIC),
        ("table", "TABLE_SEED", table::layout::SEED),
        ("table", "TABLE_HEADER_LEN", as_word(table::layout::HEADER_LEN)),
        ("table", "TABLE_BUCKET_LEN", as_word(table::layout::BUCKET_LEN)),
        ("table", "TABLE_SLOTS", as_word(table::layout::SLOTS)),
        ("table", "TABLE_CELL_LEN", as_word(table::layout::CELL_LEN)),
        ("table", "TABLE_KEY_MAX", as_word(table::layout::KEY_MAX)),
        ("table", "TABLE_VALUE_MAX", as_word(table::layout::VALUE_MAX)),
        ("table", "TABLE_SEGMENTS", table::layout::SEGMENTS_MAX),
        ("lock", "LOCK_HEADER_LEN", lock::layout::HEADER_LEN),
        ("lock", "LOCK_ENTRY_LEN", as_word(lock::layout::ENTRY_LEN)),
        ("lock", "LOCK_NAME_MAX", as_word(lock::layout::NAME_MAX)),
        ("lock", "LOCK_EPOCH_MS", lock::layout::EPOCH_MS),
        ("lock", "LOCK_LEASE_MAX", lock::layout::LEASE_MAX),
        ("script", "SCRIPT_VALUE_MAX", as_word(expiry::VALUE_MAX)),
        ("script", "SCRIPT_KEYS_MAX", as_word(swap::KEYS_MAX)),
        ("topk", "TOPK_K_MAX", topk::K_MAX.into()),
    ] {
        assert_eq!(defined(module, &format!("{name} ")), ours, "{name}");
    }
}
