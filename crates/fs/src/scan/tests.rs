//! Files of a few lines and of many, in one go and in pieces.

use super::*;

/// Lines with an x.
struct Letters;

impl LineFinder for Letters {
    fn find_lines(
        &mut self,
        lines: &[u8],
        most: usize,
        found: &mut Vec<usize>,
    ) -> Result<usize, ScanFault> {
        let mut at = 0;
        while at < lines.len() && found.len() < most {
            let end = line_end(lines, at);
            found.extend(lines[at..end].iter().position(|byte| *byte == b'x').map(|x| at + x));
            at = end;
        }
        Ok(at)
    }
}

struct Whole<'a>(&'a [u8]);

impl ScannedBytes for Whole<'_> {
    fn read(&mut self, offset: u64, len: usize, into: &mut Vec<u8>) -> Result<(), ScanFault> {
        let from = usize::try_from(offset).expect("small").min(self.0.len());
        into.extend_from_slice(&self.0[from..(from + len).min(self.0.len())]);
        Ok(())
    }

    fn has_hole(&mut self, _offset: u64) -> Result<bool, ScanFault> {
        Ok(false)
    }
}

/// What is told, where only so many lines are taken at a time, and how it ends.
fn scanned(bytes: &[u8], wish: ScanWish, at_a_time: usize) -> (Vec<(u64, u64)>, ScanEnd) {
    let (mut all, mut cursor) = (Vec::new(), ScanCursor::default());
    loop {
        let (mut scan, mut taken) = (FileScan::new(wish, cursor), 0);
        let mut tell = |line: ScannedLine<'_>| {
            taken += 1;
            if taken > at_a_time {
                return ScanGoes::Later;
            }
            all.push((line.number, line.offset));
            ScanGoes::On
        };
        let on = (&mut Whole(bytes) as &mut dyn ScannedBytes, &mut Letters as _);
        let end = scan.run(on, &mut tell, &mut |_| at_a_time > 1).expect("read");
        match end {
            ScanEnd::Later => cursor = scan.cursor(),
            end => return (all, end),
        }
    }
}

fn wish(flags: u32, most: u64) -> ScanWish {
    let (flags, around) = (flags | SCAN_LINES | SCAN_NUMBERS, (0, 0));
    ScanWish { flags, most, around, memory_max: usize::MAX }
}

/// The numbers of the lines that grep would tell, said anew.
fn expected(lines: &[bool], most: u64, (before, behind): (u32, u32)) -> Vec<u64> {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let meant = (1_u64..).zip(lines).filter(|(_, is_meant)| **is_meant).map(|(number, _)| number);
    let meant: Vec<u64> = meant.take(most).collect();
    let last = lines.len() as u64;
    let is_near = |number: &u64| {
        meant
            .iter()
            .any(|at| (at.saturating_sub(before.into())..=at + u64::from(behind)).contains(number))
    };
    (1..=last).filter(is_near).collect()
}

#[test]
fn lines_around_those_that_are_meant_are_told_once_and_in_order() {
    let near = [1, 2, 3, 8, 9, 20, 5000, 20_000, 20_001, 20_007, 30_000];
    for (name, last) in [("whole", &b"\n"[..]), ("cut", b"")] {
        let lines: Vec<bool> = (1..=30_000).map(|line| near.contains(&line)).collect();
        let words = lines.iter().map(|is_meant| if *is_meant { &b"an x"[..] } else { b"other" });
        let text = [&words.collect::<Vec<_>>().join(&b'\n')[..], last].concat();
        for around in [(0, 2), (2, 0), (1, 1), (3, 6), (40_000, 0), (0, 40_000), (7000, 7000)] {
            for (flags, most) in [(0, u64::MAX), (0, 4), (0, 0), (SCAN_INVERT, 5)] {
                let wish = ScanWish { around, ..wish(flags, most) };
                let meant: Vec<bool> =
                    lines.iter().map(|line| *line != (flags & SCAN_INVERT != 0)).collect();
                let expected = expected(&meant, most, around);
                for at_a_time in [1, 7, usize::MAX] {
                    // In pieces every line is read again for each.
                    if at_a_time < 99 && expected.len() > 300 {
                        continue;
                    }
                    let (told, _) = scanned(&text, wish, at_a_time);
                    let numbers: Vec<u64> = told.iter().map(|(number, _)| *number).collect();
                    assert_eq!(numbers, expected, "{name} {around:?} {flags} {most} {at_a_time}");
                }
            }
        }
    }
}

#[test]
fn lines_before_have_room_as_lines_have() {
    let text = [&b"other\n".repeat(60_000)[..], b"x\n"].concat();
    let most = u64::MAX;
    let run = |around| {
        let wish = ScanWish { around, memory_max: 200_000, ..wish(0, most) };
        let mut scan = FileScan::new(wish, ScanCursor::default());
        let on = (&mut Whole(&text) as &mut dyn ScannedBytes, &mut Letters as _);
        scan.run(on, &mut |_| ScanGoes::On, &mut |_| true)
    };
    assert!(matches!(run((1000, 0)), Ok(ScanEnd::Done { selected: 1, .. })));
    assert_eq!(run((60_000, 0)), Err(ScanFault::Undecided));
}

#[test]
fn a_file_that_is_gone_on_with_is_the_same_file() {
    let mut text = Vec::new();
    for line in 0..20_000_u32 {
        let word: &[u8] = if line % 700 == 3 { b"an x here" } else { b"nothing" };
        text.extend_from_slice(word);
        text.push(b'\n');
    }
    text.extend_from_slice(b"x at the end");
    let mut late = text.clone();
    late.extend_from_slice(b"\0x\nx");
    for bytes in [&text, &late] {
        for (flags, most) in [(0, u64::MAX), (0, 9), (SCAN_INVERT, 60), (SCAN_TEXT, 90)] {
            let whole = scanned(bytes, wish(flags, most), usize::MAX);
            for at_a_time in [1, 40] {
                let found = scanned(bytes, wish(flags, most), at_a_time);
                assert_eq!(found, whole, "{flags} {most} {at_a_time}");
            }
        }
    }
    let (lines, end) = scanned(&text, wish(0, u64::MAX), 5);
    assert_eq!((lines.len(), lines[1].0), (30, 704));
    assert_eq!(end, ScanEnd::Done { selected: 30, is_binary: false });
}

#[test]
fn a_byte_of_0_ends_a_line_and_the_lines_that_are_told() {
    let bytes = b"x\nno\n\0x\nx\n";
    let (lines, end) = scanned(bytes, wish(0, u64::MAX), 9);
    assert_eq!((lines.len(), end), (0, ScanEnd::Done { selected: 1, is_binary: true }));
    let (lines, end) = scanned(bytes, wish(SCAN_TEXT, u64::MAX), 9);
    assert_eq!((lines.len(), end), (3, ScanEnd::Done { selected: 3, is_binary: false }));
    let (_, end) = scanned(bytes, wish(SCAN_SKIP_BINARY, u64::MAX), 9);
    assert_eq!(end, ScanEnd::Done { selected: 0, is_binary: false });
}
