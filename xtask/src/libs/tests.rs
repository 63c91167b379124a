//! The rules of the linking step, on small tables.

use std::collections::BTreeSet;

use super::Library;
use super::check::differences;
use super::glue::Glue;
use super::symbols::{Symbol, Unsupported, listed, parse_dynamic};

const TABLE: &str = "# a comment\nrdma_a@@RDMACM_1.0\nrdma_b@@RDMACM_1.1\nrdma_b@RDMACM_1.0\n";

fn unsupported(table: &str) -> Unsupported {
    Unsupported::parse(table).expect("a good table")
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn what_rust_wrote_is_jumped_to_and_the_rest_says_that_it_is_not_there() {
    let symbols = listed(TABLE).expect("symbols");
    let rows = unsupported("rdma_b null ENOSYS\nrdma_b@RDMACM_1.0 minus-one EINVAL\n");
    let written = names(&["outboard_rdma_a"]);
    let glue = Glue::new(Library::Rdmacm, &symbols, &written, &rows).expect("glue").text();
    assert!(glue.contains("TRAMPOLINE(rdma_a);"), "{glue}");
    assert!(glue.contains("void *rdma_b(void) { errno = ENOSYS; return NULL; }"), "{glue}");
    assert!(glue.contains("long old_rdma_b(void) { errno = EINVAL; return -1; }"), "{glue}");
    assert!(glue.contains(".symver old_rdma_b, rdma_b@RDMACM_1.0"), "{glue}");
    assert!(!glue.contains("TRAMPOLINE(rdma_b)"), "{glue}");
}

#[test]
fn a_symbol_in_neither_place_is_named() {
    let symbols = listed(TABLE).expect("symbols");
    let rows = unsupported("rdma_b nothing\n");
    let error = Glue::new(Library::Rdmacm, &symbols, &names(&[]), &rows).expect_err("missing");
    let text = error.to_string();
    let expected = "librdmacm.so.1 needs outboard_rdma_a, outboard_rdma_b@RDMACM_1.0: write";
    assert!(text.starts_with(expected), "{text}");
}

#[test]
fn a_row_must_be_understood_and_single() {
    let error = Unsupported::parse("a zero\nb null\n").expect_err("no errno").to_string();
    assert_eq!(error, "unsupported:2: what is b null?");
    let error = Unsupported::parse("a zero\n\na zero\n").expect_err("twice").to_string();
    assert_eq!(error, "unsupported:3: a has two rows");
}

#[test]
fn rows_that_say_nothing_are_found() {
    let rows = unsupported("rdma_a zero\nrdma_b zero\nrdma_b@RDMACM_1.0 zero\nrdma_c zero\n");
    assert_eq!(rows.stale(&names(&["outboard_rdma_a", "rdma_c"])), ["rdma_a", "rdma_c"]);
    assert_eq!(rows.unknown(&listed(TABLE).expect("symbols")), ["rdma_c"]);
}

#[test]
fn differences_name_what_only_one_side_has() {
    let wanted = listed(TABLE).expect("symbols");
    let found = parse_dynamic(
        "RDMACM_1.0 A 0\nrdma_a@@RDMACM_1.0 T 1 2\nrdma_b@@RDMACM_1.0 T 1 2\n\
         rdma_b@RDMACM_1.0 T 1 2\noutboard_x@@OUTBOARD_PRIVATE T 3 1\n",
    );
    assert_eq!(
        differences(Library::Rdmacm, &wanted, &found),
        [
            "librdmacm.so.1 lacks rdma_b@@RDMACM_1.1",
            "librdmacm.so.1 has rdma_b@@RDMACM_1.0, which the table does not"
        ]
    );
}

#[test]
fn the_tables_of_the_project_are_read() {
    let unsupported = super::unsupported().expect("unsupported");
    let mut all = Vec::new();
    for library in Library::ALL {
        all.extend(library.symbols().expect("symbols"));
    }
    assert!(all.iter().any(|symbol| symbol.to_string() == "ibv_open_device@@IBVERBS_1.1"));
    assert!(unsupported.unknown(&all).is_empty());
    assert_eq!(Symbol::parse("unversioned"), None);
}
