//! Lists against the plain byte vector that they pretend to be.

use proptest::prelude::*;

use super::*;
use crate::shared::SharedRegion;

/// Each segment: its bytes and whether it is shared.
fn build(parts: &[(Vec<u8>, bool)]) -> (SgList, Vec<u8>) {
    let segments = parts.iter().map(|(bytes, shared)| match shared {
        false => Segment::Owned(OwnedBuf::from(&bytes[..])),
        true => {
            let region = SharedRegion::zeroed(bytes.len() + 9).expect("memory");
            region.copy_in(5, bytes).expect("in range");
            Segment::Shared(region.slice(5..5 + bytes.len()).expect("in range"))
        }
    });
    let model = parts.iter().flat_map(|(bytes, _)| bytes.clone()).collect();
    (SgList::from(segments.collect::<Vec<_>>()), model)
}

fn all(list: &SgList) -> Vec<u8> {
    let mut out = Vec::new();
    list.gather(0, list.len(), &mut out).expect("whole list");
    out
}

/// What a system call would read.
fn through(spans: &[Span]) -> Vec<u8> {
    let mut out = Vec::new();
    for span in spans {
        // SAFETY: the list the spans were made from is alive and no other code uses its memory.
        out.extend_from_slice(unsafe { std::slice::from_raw_parts(span.ptr, span.len) });
    }
    out
}

fn parts() -> impl Strategy<Value = Vec<(Vec<u8>, bool)>> {
    prop::collection::vec((prop::collection::vec(any::<u8>(), 0..20), any::<bool>()), 0..6)
}

proptest! {
    #[test]
    fn behaves_like_a_vector(
        parts in parts(),
        steps in prop::collection::vec((0usize..70, 0usize..70, any::<u8>()), 1..12),
    ) {
        let (mut list, mut model) = build(&parts);
        prop_assert_eq!((list.len(), list.segment_count()), (model.len(), parts.len()));
        for (offset, len, byte) in steps {
            let new: Vec<u8> = (0..len).map(|at| byte ^ at.to_le_bytes()[0]).collect();
            let inside = offset <= model.len() && len <= model.len() - offset;
            let (mut out, mut spans) = (vec![1], Vec::new());
            let got = list.gather(offset, len, &mut out);
            let seen = out[1..].to_vec();
            prop_assert_eq!(got.is_ok(), inside);
            prop_assert_eq!(list.spans(offset, len, &mut spans).is_ok(), inside);
            prop_assert_eq!(through(&spans), seen.clone());
            prop_assert!(spans.iter().all(|span| span.len > 0));
            let one = list.owned_slice(offset, len).map(<[u8]>::to_vec);
            if inside {
                prop_assert_eq!(&seen[..], &model[offset..offset + len]);
                prop_assert!(one.is_none_or(|bytes| bytes == seen));
                model[offset..offset + len].copy_from_slice(&new);
            } else {
                prop_assert!(seen.is_empty() && one.is_none());
            }
            prop_assert_eq!(list.scatter(offset, &new).is_ok(), inside);
            prop_assert_eq!(all(&list), model.clone());
        }
    }

    #[test]
    fn writing_through_spans_changes_exactly_the_range(
        parts in parts(), offset in 0usize..60, len in 0usize..60,
    ) {
        let (mut list, mut model) = build(&parts);
        let mut spans = Vec::new();
        if list.spans_mut(offset, len, &mut spans).is_ok() {
            for span in &spans {
                // SAFETY: `spans_mut` made it for writing; the list is alive and untouched.
                unsafe { span.ptr.write_bytes(0xA5, span.len) };
            }
            model[offset..offset + len].fill(0xA5);
        } else {
            prop_assert!(spans.is_empty() && offset + len > model.len());
        }
        prop_assert_eq!(all(&list), model);
    }
}

#[test]
fn nothing_is_written_when_out_of_bounds() {
    let (mut list, model) = build(&[(vec![1; 4], false), (vec![2; 4], true)]);
    let error = MemError::OutOfBounds { offset: 5, len: 4, size: 8 };
    assert_eq!(list.scatter(5, &[9; 4]), Err(error));
    assert!(list.scatter(usize::MAX, &[9; 4]).is_err());
    assert_eq!(all(&list), model);
}

#[test]
fn owned_slice_needs_one_exclusive_segment() {
    let (list, _) = build(&[(vec![], false), (vec![1, 2, 3], false), (vec![4, 5], true)]);
    assert_eq!(list.owned_slice(1, 2), Some(&[2, 3][..]));
    assert_eq!(list.owned_slice(2, 2), None);
    assert_eq!(list.owned_slice(3, 1), None);
    assert_eq!(list.owned_slice(1, 0), None);
    assert_eq!(list.owned_slice(usize::MAX, usize::MAX), None);
}

#[test]
fn gives_its_segments_back() {
    let (list, _) = build(&[(vec![4], true), (vec![7, 8], false), (vec![9], false)]);
    assert_eq!(list.into_owned(), Some(OwnedBuf::from(vec![7, 8])));
    assert_eq!(SgList::copied(b"abc").into_owned().map(OwnedBuf::into_vec), Some(b"abc".to_vec()));
    assert_eq!(SgList::new().into_owned(), None);
    assert!(SgList::new().is_empty() && SgList::new().segment_count() == 0);
}

/// Four exclusive bytes, four of `region`, four exclusive ones.
fn with_part_of(region: &SharedRegion) -> SgList {
    let own = || Segment::Owned(OwnedBuf::from(&b"-own"[..]));
    SgList::from(vec![own(), Segment::Shared(region.slice(2..6).expect("in range")), own()])
}

#[test]
fn revoked_memory_is_refused_and_nothing_else() {
    let region = SharedRegion::zeroed(8).expect("memory");
    let mut list = with_part_of(&region);
    assert!(list.is_intact());
    assert!(list.revoke(&region.clone()));
    assert!(!list.revoke(&region));
    assert_eq!((list.len(), list.segment_count(), list.is_intact()), (12, 3, false));
    let (mut out, mut spans) = (b"kept".to_vec(), Vec::new());
    let gone = Err(MemError::Gone { len: 4 });
    for (offset, len) in [(0, 12), (3, 2), (4, 4), (7, 2)] {
        assert!(!list.is_usable(offset, len));
        assert_eq!(list.gather(offset, len, &mut out), gone);
        assert_eq!(list.spans(offset, len, &mut spans), gone);
        assert_eq!(list.spans_mut(offset, len, &mut spans), gone);
        assert_eq!(list.scatter(offset, &vec![9; len]), gone);
        assert!(out == b"kept" && spans.is_empty());
    }
    assert_eq!(list.owned_slice(4, 4), None);
    assert!(list.is_usable(0, 4) && list.is_usable(8, 4) && list.is_usable(4, 0));
    assert_eq!(list.scatter(0, b"1234"), Ok(()));
    assert_eq!(list.scatter(8, b"5678"), Ok(()));
    assert_eq!(list.gather(8, 4, &mut out), Ok(()));
    assert_eq!(out, b"kept5678");
    assert_eq!(list.scatter(4, &[]), Ok(()));
    assert_eq!(
        list.scatter(9, b"1234"),
        Err(MemError::OutOfBounds { offset: 9, len: 4, size: 12 })
    );
    assert_eq!(region.snapshot(0..8), Ok(vec![0; 8]));
}

#[test]
fn regions_over_the_same_bytes_are_revoked_apart() {
    let mut bytes = [7_u8; 8];
    // SAFETY: `bytes` outlives both regions and is used through them only.
    let adopt = |start: *mut u8| unsafe { SharedRegion::from_raw(start, 8) };
    let (one, other) = (adopt(bytes.as_mut_ptr()), adopt(bytes.as_mut_ptr()));
    let mut list = with_part_of(&one);
    assert!(!list.revoke(&other) && list.is_intact());
    assert_eq!(all(&list), b"-own\x07\x07\x07\x07-own");
    assert!(list.revoke(&one) && !list.is_intact());
}

#[test]
fn a_list_may_begin_without_its_memory() {
    let list = SgList::from(Segment::Gone { len: 5 });
    assert!(!list.is_intact() && list.len() == 5 && list.into_owned().is_none());
    assert!(!SgList::from(vec![Segment::Gone { len: 5 }]).is_intact());
    assert!(SgList::new().is_intact());
}
