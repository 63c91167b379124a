//! The parts of the benchmark by name, and what each must reach; how parts are run is in
//! `bench::aimed`.

use super::{empty, placement, redis, structures, tail, topk};
use crate::bench::aimed::{Aim, AimedPart, least, most};

/// Every part, in the order of the page.
pub(super) const PARTS: &[AimedPart] = &[STRUCTURES, EMPTY, REDIS, TOPK, TAIL, PLACEMENT];

const PLACEMENT: AimedPart = AimedPart {
    name: "placement",
    aims: &[most("`auto` / the better side, worst of four entries", 1.1)],
    measure: placement::choices,
};

const STRUCTURES: AimedPart = AimedPart {
    name: "structures",
    aims: &[
        Aim { paper: "79", ..least("list get, 100 hops in, loopback: plain / active", 40.0) },
        Aim { paper: "120", ..least("list put, 100 hops in, loopback: plain / active", 40.0) },
        least("list get, 100 hops in, 100 µs one way: plain / active", 40.0),
        least("list put, 100 hops in, 100 µs one way: plain / active", 40.0),
        most("hash get where plain needs one Read, loopback: active / plain", 1.5),
        Aim { paper: "7", ..least("hash get, two Reads, loopback: plain / active", 1.2) },
        Aim { paper: "8", ..least("hash put, loopback: plain / active", 3.0) },
        most("hash get where plain needs one Read, 100 µs one way: active / plain", 1.5),
        least("hash get, two Reads, 100 µs one way: plain / active", 1.2),
        least("hash put, 100 µs one way: plain / active", 3.0),
    ],
    measure: structures::both_paths,
};

const TOPK: AimedPart = AimedPart {
    name: "topk",
    aims: &[
        least("top-k scan of 100 MB: time of native C at -O2 / Execute", 0.7),
        least("top-k scan of 100 MB: reading it all at 1 Gbit/s / Execute", 5.0),
    ],
    measure: topk::scans,
};

const EMPTY: AimedPart = AimedPart {
    name: "empty",
    aims: &[
        most("trusted, empty Execute / 8-byte Send ping-pong, spinning", 1.5),
        most("encrypted, empty Execute / 8-byte Send ping-pong, spinning", 1.5),
        most("an empty execution in the executor alone, µs", 1.0),
    ],
    measure: empty::beside_send,
};

const TAIL: AimedPart = AimedPart {
    name: "tail",
    aims: &[most("99th percentile of 64 B Reads, 8 clients run 1 ms modules / idle", 2.0)],
    measure: tail::of_reads,
};

const REDIS: AimedPart = AimedPart {
    name: "redis",
    aims: &[
        least("gets, trusted, 1 connection, blocking: ours / EVALSHA", 1.0),
        least("gets, trusted, 1 connection, short spin: ours / EVALSHA", 3.0),
        least("gets, trusted, 50 connections: ours / EVALSHA", 1.3),
        least("gets, trusted, 50 connections, 16 in flight: ours / EVALSHA", 3.0),
        least("puts, trusted, 1 connection, blocking: ours / EVALSHA", 1.0),
        least("puts, trusted, 1 connection, short spin: ours / EVALSHA", 3.0),
        least("puts, trusted, 50 connections: ours / EVALSHA", 1.3),
        least("puts, trusted, 50 connections, 16 in flight: ours / EVALSHA", 3.0),
        least("gets, encrypted, 1 connection, blocking: ours / EVALSHA", 1.0),
        least("gets, encrypted, 1 connection, short spin: ours / EVALSHA", 3.0),
        least("gets, encrypted, 50 connections: ours / EVALSHA", 1.3),
        least("gets, encrypted, 50 connections, 16 in flight: ours / EVALSHA", 3.0),
        least("puts, encrypted, 1 connection, blocking: ours / EVALSHA", 1.0),
        least("puts, encrypted, 1 connection, short spin: ours / EVALSHA", 3.0),
        least("puts, encrypted, 50 connections: ours / EVALSHA", 1.3),
        least("puts, encrypted, 50 connections, 16 in flight: ours / EVALSHA", 3.0),
    ],
    measure: redis::beside,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::aimed::are_apart;

    #[test]
    fn no_two_parts_or_aims_are_called_alike() {
        assert!(are_apart(PARTS));
    }
}
