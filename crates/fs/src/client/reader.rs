//! A client that reads one-sided: walks through the region's structures by RDMA Reads, over a
//! connection of its own, without any execution.
//!
//! What cannot be read so, in time or of one state, is asked of the module: a walk that says
//! nothing is no failure. The service sees none of these Reads: it checks no rights, and nobody is
//! told later what changes.

use super::counts::RoundTrips;
use super::error::FsError;
use super::{FsClient, FsClientOptions, FsVariant};
use crate::one_sided::{ReadPlace, RegionHeaders, RegionView, SparseBytes, WalkStop};
use crate::protocol::volatile::{SEQ_AT, SHARED_REGION};
use crate::protocol::{HEADER_SHOWN, REGION};
use outboard_active::{
    ActiveClient, ActiveClientOptions, ActiveError, DialActive, RegionVerb, RemoteRegion, VerbWhat,
};
use outboard_verbs::Context;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What a Read is counted as.
const COUNTED: &str = "one_sided";
/// How long a service may take to be there again; then the module is asked, which waits longer.
const LIMIT: Duration = Duration::from_secs(1);
/// How long no Read is tried after one that failed.
const REST: Duration = Duration::from_secs(1);
/// Times that a walk reads, at most: behind so many, something that was read has no end.
const ROUNDS_MAX: usize = 24;
/// How often something may be committed while a walk reads.
const TORN_MAX: usize = 2;
/// How often a walk may find the headers to be old.
const MOVED_MAX: usize = 2;
/// Places and bytes that one round reads, at most.
const PLACES_MAX: usize = 128;
const BYTES_MAX: usize = 256 << 10;
/// Walks of which it is kept what they read last.
const PREDICTED_MAX: usize = 1 << 14;

/// See this file's first lines.
pub(super) struct OneSidedReader(Mutex<ReaderLink>);

struct ReaderLink {
    client: ActiveClient,
    region: RemoteRegion,
    /// Of a volatile file system, the region that says how often the metadata have changed.
    changes: Option<RemoteRegion>,
    headers: RegionHeaders,
    /// The connection over which they were read.
    connection: u64,
    /// What walks read when they were made before, by what they look for: it is read at once, and
    /// is mostly what is needed again.
    predicted: HashMap<u64, Vec<ReadPlace>>,
    rests_until: Option<Instant>,
}

impl OneSidedReader {
    /// Connects to a service that shows its region.
    pub(super) fn connect(
        context: &Context,
        dial: DialActive,
        options: &FsClientOptions,
    ) -> Result<Self, FsError> {
        let limits = ActiveClientOptions { limit: options.connect, ..<_>::default() };
        let mut client = ActiveClient::connect(context, dial, limits)?;
        let region = client.attach(REGION)?;
        if region.len() <= HEADER_SHOWN as u64 {
            return Err(FsError::NotShown);
        }
        let changes = match options.variant {
            FsVariant::Rdma => Some(client.attach(SHARED_REGION)?),
            FsVariant::Active | FsVariant::OneSided => None,
        };
        client.options_mut().limit = LIMIT;
        let (headers, connection) = (RegionHeaders::default(), client.connections());
        let (predicted, rests_until) = (HashMap::new(), None);
        let link =
            ReaderLink { client, region, changes, headers, connection, predicted, rests_until };
        Ok(Self(Mutex::new(link)))
    }

    /// What a walk comes to; `None`: the module is asked. `what` tells walks apart.
    fn walk<T>(
        &self,
        trips: &RoundTrips,
        what: impl Hash,
        walk: impl Fn(&RegionView<'_>) -> Result<T, WalkStop>,
    ) -> Option<T> {
        let mut link = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if link.rests_until.is_some_and(|until| Instant::now() < until) {
            return None;
        }
        let mut hasher = DefaultHasher::new();
        what.hash(&mut hasher);
        let walked = link.walk(trips, hasher.finish(), walk);
        walked.unwrap_or_else(|error| {
            tracing::debug!(%error, "nothing is read one-sided for a while");
            link.rests_until = Some(Instant::now() + REST);
            None
        })
    }
}

impl ReaderLink {
    fn walk<T>(
        &mut self,
        trips: &RoundTrips,
        what: u64,
        walk: impl Fn(&RegionView<'_>) -> Result<T, WalkStop>,
    ) -> Result<Option<T>, ActiveError> {
        let mut places = self.predicted.remove(&what).unwrap_or_default();
        let (mut torn, mut moved) = (0, 0);
        for _ in 0..ROUNDS_MAX {
            if !self.knows_headers(trips)? {
                return Ok(None);
            }
            let Some(bytes) = self.read(trips, &places)? else {
                torn += 1;
                if torn > TORN_MAX {
                    break;
                }
                continue;
            };
            let view = RegionView::new(&self.headers, &bytes, self.region.len());
            match walk(&view) {
                Ok(value) => {
                    let used = view.used();
                    self.predict(what, used);
                    return Ok(Some(value));
                }
                Err(WalkStop::Missing(more)) => places.extend(more),
                Err(WalkStop::Moved) if moved < MOVED_MAX => {
                    (moved, self.headers) = (moved + 1, RegionHeaders::default());
                    places.clear();
                }
                Err(_) => break,
            }
            let bytes: usize = places.iter().map(|(_, len)| len).sum();
            if places.len() > PLACES_MAX || bytes > BYTES_MAX {
                break;
            }
        }
        Ok(None)
    }

    fn predict(&mut self, what: u64, places: Vec<ReadPlace>) {
        if self.predicted.len() >= PREDICTED_MAX {
            self.predicted.clear();
        }
        self.predicted.insert(what, places);
    }

    /// Reads places, of one state and by the connection that the headers are of.
    fn read(
        &mut self,
        trips: &RoundTrips,
        places: &[ReadPlace],
    ) -> Result<Option<SparseBytes>, ActiveError> {
        if places.is_empty() {
            return Ok(Some(SparseBytes::default()));
        }
        trips.add(COUNTED);
        let read = self.read_together(places)?;
        let is_same = self.client.connections() == self.connection;
        Ok(read.filter(|_| is_same).map(|read| SparseBytes::of(places, read)))
    }

    /// Bytes of places, of one state; `None`: something has changed meanwhile.
    fn read_together(&mut self, places: &[ReadPlace]) -> Result<Option<Vec<Vec<u8>>>, ActiveError> {
        let Some(changes) = &self.changes else {
            return self.region.read_together(&mut self.client, places);
        };
        let count = RegionVerb { region: changes, at: SEQ_AT, what: VerbWhat::Read(8) };
        let region = &self.region;
        let inner = places.iter();
        let inner =
            inner.map(|(at, len)| RegionVerb { region, at: *at, what: VerbWhat::Read(*len) });
        let verbs: Vec<_> = std::iter::once(count).chain(inner).chain([count]).collect();
        let mut read = self.client.verbs(&verbs)?;
        let (after, before) = (read.pop(), read.remove(0));
        let is_one = after.as_ref() == Some(&before) && number(&before).is_multiple_of(2);
        Ok(is_one.then_some(read))
    }

    /// Reads the headers, if they are not known; whether there are any. A connection that was made
    /// anew may be to a service with another memory.
    fn knows_headers(&mut self, trips: &RoundTrips) -> Result<bool, ActiveError> {
        if self.connection != self.client.connections() {
            self.connection = self.client.connections();
            self.headers = RegionHeaders::default();
            self.predicted.clear();
        }
        if self.headers.is_known() {
            return Ok(true);
        }
        let len = self.region.len();
        trips.add_many(COUNTED, 2);
        let begin = self.read_together(&[RegionHeaders::BEGIN])?;
        let begin = begin.and_then(|read| read.into_iter().next()).unwrap_or_default();
        let Some(places) = RegionHeaders::places(&begin, len) else { return Ok(false) };
        let read = self.read_together(&places)?.and_then(|read| read.try_into().ok());
        let Some(headers) = read.and_then(RegionHeaders::parse) else { return Ok(false) };
        self.headers = headers;
        Ok(true)
    }
}

/// The number of 8 bytes in the node's byte order.
fn number(bytes: &[u8]) -> u64 {
    bytes.first_chunk().copied().map_or(0, u64::from_ne_bytes)
}

impl FsClient {
    /// Whether names and attributes are read one-sided.
    #[must_use]
    pub fn is_one_sided(&self) -> bool {
        self.reader.is_some()
    }

    /// What a walk through the region comes to, where this client reads one-sided; `None`: the
    /// module is asked.
    pub(super) fn read_region<T>(
        &self,
        what: impl Hash,
        walk: impl Fn(&RegionView<'_>) -> Result<T, WalkStop>,
    ) -> Option<T> {
        self.reader.as_ref()?.walk(&self.trips, what, walk)
    }
}
