//! The parts of the benchmark by name, and what each must reach; how parts are run is in
//! `bench::aimed`.

use anyhow::Result;

use super::{call, channel, layouts, life, node, source};
use crate::bench::aimed::{Aim, AimedFindings, AimedPart, least, most};

/// Every part, in the order of the page.
pub(super) const PARTS: &[AimedPart] =
    &[CALL, CHANNEL, NODE, MULTICAST, LOAD, DEPLOY, LAYOUTS, MOVE, SOURCE];

const CALL: AimedPart = AimedPart {
    name: "call",
    aims: &[most("Call of 16 B to a resident, answered / wasmtime's bare typed call", 2.0)],
    measure: call::beside_wasmtime,
};

const CHANNEL: AimedPart = AimedPart {
    name: "channel",
    aims: &[
        most("64 B, spinning, half a round trip: ring / iceoryx2", 1.0),
        least("64 B, spinning, messages a second: ring / iceoryx2", 1.0),
        most("half a round trip in place: 1 MiB / 64 B", 1.1),
    ],
    measure: channel::beside_iceoryx,
};

const NODE: AimedPart = AimedPart {
    name: "verbs",
    aims: &[most("64 B to a node and back / encrypted Sends, ping-pong of 8 B", 1.15)],
    measure: node::beside_sends,
};

const MULTICAST: AimedPart = AimedPart {
    name: "multicast",
    aims: &[most("sender's CPU, to 8 by IP multicast / to 1", 1.3)],
    measure: multicast,
};

const LOAD: AimedPart = AimedPart {
    name: "load",
    aims: &[
        Aim { paper: "4 messages", ..most("round trips to load an offcode, code known", 1.0) },
        Aim { paper: "4 messages", ..most("round trips to load an offcode, code unknown", 2.0) },
    ],
    measure: life::loads,
};

const DEPLOY: AimedPart = AimedPart {
    name: "deploy",
    aims: &[most("20 offcodes on 4 devices, begun and ended / 3 bare processes", 2.0)],
    measure: life::deployments,
};

const LAYOUTS: AimedPart = AimedPart {
    name: "layouts",
    aims: &[
        least("share of layouts of 40 offcodes proven best within 50 ms", 0.95),
        most("largest gap of the others", 0.05),
    ],
    measure: layouts::proven,
};

const MOVE: AimedPart = AimedPart {
    name: "move",
    aims: &[
        most("1 MiB, host and core: pause / memcpy and two wake-ups", 3.0),
        most("1 MiB across a link: pause / time on the wire", 1.2),
    ],
    measure: life::moves,
};

const SOURCE: AimedPart = AimedPart { name: "filter", aims: &[], measure: source::processor_time };

fn multicast() -> Result<AimedFindings> {
    let note = "No provider of channels uses IP multicast: a channel to several receivers sends \
                to each of them.";
    Ok(AimedFindings { notes: vec![note.to_owned()], ..AimedFindings::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::aimed::are_apart;

    #[test]
    fn every_part_and_aim_has_its_own_name() {
        assert!(are_apart(PARTS));
    }
}
