//! The timeline as a picture: a lane for each slot, time to the right, each phase of a job in a
//! colour.
//!
//! The page needs no other file. Names come from users' files, so they are escaped.

use super::record::{How, JobRecord, PhaseKind};
use std::collections::BTreeMap;
use std::fmt::Write;

const WIDTH: f64 = 1600.0;
const LEFT: f64 = 160.0;
const TOP: f64 = 40.0;
const LANE: f64 = 22.0;
/// A job's name is written into its bar if the bar has this many pixels for each letter.
const LETTER: f64 = 6.5;
/// Lines of the time scale, at most.
const TICKS_MAX: u64 = 16;

const STYLE: &str = "text{font:11px sans-serif;fill:#222}.prepared{fill:#f2c14e}\
.ran{fill:#4d9de0}.returned{fill:#3bb273}.home .ran{fill:#e15554}.tick{stroke:#ccc}\
.name{fill:#fff;pointer-events:none}";

/// The picture as a page.
#[must_use]
pub fn html(records: &[JobRecord]) -> String {
    format!(
        "<!DOCTYPE html>\n<meta charset=\"utf-8\">\n<title>outboard cc: timeline</title>\n\
         <p>yellow: prepared; blue: on a server; green: coming back; red: locally</p>\n{}",
        svg(records)
    )
}

/// The picture of what ran, as SVG.
#[must_use]
pub fn svg(records: &[JobRecord]) -> String {
    let scale = Scale::of(records);
    let lanes = lanes(records);
    #[expect(clippy::cast_precision_loss, reason = "slots of all servers")]
    let height = TOP + LANE * (lanes.len() as f64 + 1.0);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\">\n<style>{STYLE}</style>\n"
    );
    scale.draw(&mut out, height);
    let mut y = TOP;
    for ((place, slot), records) in &lanes {
        let (middle, place) = (y + LANE * 0.7, escape(place));
        write_to(&mut out, format_args!("<text x=\"4\" y=\"{middle}\">{place} {slot}</text>\n"));
        records.iter().for_each(|record| draw(&mut out, record, &scale, y));
        y += LANE;
    }
    out.push_str("</svg>\n");
    out
}

type Lanes<'a> = BTreeMap<(&'a str, u32), Vec<&'a JobRecord>>;

fn lanes(records: &[JobRecord]) -> Lanes<'_> {
    let mut lanes = Lanes::new();
    for record in records {
        lanes.entry((&record.place, record.slot)).or_default().push(record);
    }
    lanes
}

struct Scale {
    begin_us: u64,
    length_us: u64,
}

impl Scale {
    fn of(records: &[JobRecord]) -> Self {
        let begin_us = records.iter().map(held_from).min().unwrap_or(0);
        let end_us = records.iter().map(JobRecord::ended_us).max().unwrap_or(0);
        Self { begin_us, length_us: end_us.saturating_sub(begin_us).max(1) }
    }

    #[expect(clippy::cast_precision_loss, reason = "pixels")]
    fn x(&self, us: u64) -> f64 {
        let part = us.saturating_sub(self.begin_us) as f64 / self.length_us as f64;
        LEFT + part * (WIDTH - LEFT - 10.0)
    }

    /// Lines at round times: 1, 2 or 5 times a power of ten.
    fn draw(&self, out: &mut String, height: f64) {
        let step = (0..19)
            .flat_map(|power| [1, 2, 5].map(|digit| digit * 10_u64.pow(power)))
            .find(|step| self.length_us / step < TICKS_MAX)
            .unwrap_or(u64::MAX);
        for tick in 0..=self.length_us / step {
            let x = self.x(self.begin_us + tick * step);
            let (ms, top) = (tick * step / 1000, TOP - 6.0);
            write_to(
                out,
                format_args!(
                    "<line class=\"tick\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top}\" \
                     y2=\"{height}\"/><text x=\"{x:.1}\" y=\"{:.1}\">{ms} ms</text>\n",
                    top - 4.0
                ),
            );
        }
    }
}

/// When the job got its slot. The time before, when it only waited, is not drawn.
fn held_from(record: &JobRecord) -> u64 {
    let waited = record.phases.iter().take_while(|phase| phase.stage == PhaseKind::Queued);
    waited.fold(record.began_us, |at, phase| at.saturating_add(phase.us))
}

fn draw(out: &mut String, record: &JobRecord, scale: &Scale, y: f64) {
    let class = if matches!(record.how, How::Local(_)) { "local" } else { "remote" };
    write_to(out, format_args!("<g class=\"{class}\"><title>{}</title>", title(record)));
    let mut at = record.began_us;
    for phase in &record.phases {
        let end = at.saturating_add(phase.us);
        if phase.stage != PhaseKind::Queued {
            let (x, width) = (scale.x(at), scale.x(end) - scale.x(at));
            let (class, y, height) = (name(phase.stage), y + 2.0, LANE - 4.0);
            write_to(
                out,
                format_args!(
                    "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" \
                     height=\"{height:.1}\"/>"
                ),
            );
        }
        at = end;
    }
    let (x, middle) = (scale.x(held_from(record)) + 2.0, y + LANE * 0.7);
    #[expect(clippy::cast_precision_loss, reason = "letters of a file's name")]
    let letters = record.name.chars().count() as f64;
    if scale.x(record.ended_us()) - x > letters * LETTER {
        let text = escape(&record.name);
        write_to(
            out,
            format_args!("<text class=\"name\" x=\"{x:.1}\" y=\"{middle:.1}\">{text}</text>"),
        );
    }
    out.push_str("</g>\n");
}

fn title(record: &JobRecord) -> String {
    let mut title = escape(&record.name);
    if let How::Local(reason) = &record.how {
        write_to(&mut title, format_args!(" ({})", escape(reason)));
    }
    for phase in &record.phases {
        let (name, us) = (name(phase.stage), phase.us);
        write_to(&mut title, format_args!(", {name} {}.{} ms", us / 1000, us % 1000 / 100));
    }
    title
}

fn name(stage: PhaseKind) -> &'static str {
    match stage {
        PhaseKind::Queued => "queued",
        PhaseKind::Prepared => "prepared",
        PhaseKind::Ran => "ran",
        PhaseKind::Returned => "returned",
    }
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            _ if letter.is_control() => out.push('\u{fffd}'),
            _ => out.push(letter),
        }
    }
    out
}

fn write_to(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = out.write_fmt(text);
}

#[cfg(test)]
mod tests {
    use super::super::record::JobPhase;
    use super::*;

    fn record(name: &str, place: &str, began_us: u64) -> JobRecord {
        let phases =
            [(PhaseKind::Queued, 1000), (PhaseKind::Ran, 50_000), (PhaseKind::Returned, 2500)];
        let phases = phases.map(|(stage, us)| JobPhase { stage, us }).to_vec();
        JobRecord {
            name: name.into(),
            place: place.into(),
            slot: 0,
            began_us,
            phases,
            how: How::Remote,
        }
    }

    #[test]
    fn every_slot_has_a_lane_and_every_job_a_bar_with_its_name() {
        let records = [record("a.c", "n1", 5), record("b.c", "n1", 60_000), record("c.c", "n2", 9)];
        let picture = svg(&records);
        assert_eq!(picture.matches("<text x=\"4\"").count(), 2);
        assert_eq!(picture.matches("class=\"ran\"").count(), 3);
        assert_eq!(picture.matches("class=\"queued\"").count(), 0);
        assert!(
            picture.contains("<title>a.c, queued 1.0 ms, ran 50.0 ms, returned 2.5 ms</title>")
        );
        assert!(picture.contains(">a.c</text>"));
    }

    #[test]
    fn a_name_cannot_leave_its_place() {
        let mut record = record("<script>\"&\n", "<b>", 0);
        record.how = How::Local("<i>".into());
        let picture = html(&[record]);
        assert!(
            !picture.contains("<script") && !picture.contains("<b>") && !picture.contains("<i>")
        );
        assert!(picture.contains("&lt;script&gt;&quot;&amp;\u{fffd}"));
    }

    #[test]
    fn an_empty_timeline_and_one_of_hours_can_be_drawn() {
        assert!(svg(&[]).ends_with("</svg>\n"));
        let mut long = record("a.c", "n1", u64::MAX - 10);
        long.phases[1].us = u64::MAX;
        assert!(svg(&[long, record("b.c", "n1", 0)]).contains("b.c"));
    }
}
