//! A manager as a helper of this crate's tests: its farm is on this machine, or nowhere.
//!
//! `OUTBOARD_TEST_FARM` says which: `local` runs compilers in processes of its own, `instant` has
//! one octet for each object at once, `failing` fails every job, `absent` never answers, nor does
//! `stuck`, which is small.

#![forbid(unsafe_code)]

#[path = "../tests/support/farms.rs"]
mod farms;

use outboard_compile::front::{Farm, Front, Nobody, Settings, listen};
use outboard_compile::stats::{Journal, state_directory};
use std::error::Error;
use std::time::Duration;

fn main() -> Result<(), Box<dyn Error>> {
    match &*std::env::var("OUTBOARD_TEST_FARM").unwrap_or_default() {
        "local" => serve(farms::Local::new(2)?),
        "instant" => serve(farms::Instant::new()?),
        "failing" => serve(farms::Failing::new()?),
        "stuck" => serve(farms::Stuck::new()?),
        "absent" => serve(farms::Absent::new()?),
        _ => serve(Nobody::new("")?),
    }
}

fn serve(farm: impl Farm) -> Result<(), Box<dyn Error>> {
    let (listener, place) = listen()?;
    let idle = std::env::var("OUTBOARD_TEST_IDLE_MS").ok().and_then(|text| text.parse().ok());
    let mut settings = Settings::default();
    settings.idle = idle.map_or(settings.idle, Duration::from_millis);
    let journal = Journal::new(state_directory().as_deref());
    Ok(Front::new(listener, Some(place), farm, settings, journal)?.run()?)
}
