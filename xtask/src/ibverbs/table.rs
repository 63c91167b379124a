//! What is run: stock programs, their arguments, and what their output must contain.
//!
//! `{port}` stands for a free port, `{address}` for the device's address, `{count}` for how often
//! the work is repeated: fewer times when sampled than with `--full`.

/// Where a row runs, and which address the device has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Site {
    /// 127.0.0.1.
    #[default]
    Loopback,
    /// An interface's, in a namespace of our own: libfabric's verbs provider leaves loopback out.
    Interface,
    /// 127.0.0.1, with the programs and drivers of Debian 13 (rdma-core 56); only when full.
    Debian13,
    /// 127.0.0.1, as a user without rights.
    Ordinary,
}

/// One proof: a server and a client of it, or a program alone.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    /// What the result is printed under.
    pub(super) name: String,
    pub(super) personality: &'static str,
    /// The server's command line; `None` when the client's program needs none.
    pub(super) server: Option<String>,
    pub(super) client: String,
    /// Texts that both outputs together must contain.
    pub(super) says: &'static [&'static str],
    pub(super) environment: &'static [(&'static str, &'static str)],
    pub(super) site: Site,
    /// Its time limit.
    pub(super) seconds: u64,
}

/// A line of the tables below: name, server, client, texts.
type Line = (&'static str, &'static str, &'static str, &'static [&'static str]);

/// Programs without a peer, on either personality.
const ALONE: &[Line] = &[
    ("ibv_devices", "", "ibv_devices", &["outboard0"]),
    ("ibv_devinfo", "", "ibv_devinfo -v", &["hca_id:\toutboard0", "PORT_ACTIVE", "max_mr_size:"]),
    ("ibv_devinfo -l", "", "ibv_devinfo -l", &["1 HCA found"]),
];

/// Programs that connect through rdma_cm.
const CONNECTED: &[Line] = &[
    (
        "ucmatose",
        "ucmatose -b {address} -p {port}",
        "ucmatose -s {address} -p {port}",
        &["test complete", "return status 0"],
    ),
    (
        "ucmatose, 8 connections",
        "ucmatose -c 8 -C 100 -S 4096 -b {address} -p {port}",
        "ucmatose -c 8 -C 100 -S 4096 -s {address} -p {port}",
        &["return status 0"],
    ),
    (
        "rdma_client",
        "rdma_server -p {port}",
        "rdma_client -s {address} -p {port}",
        &["rdma_client: end 0", "rdma_server: end 0"],
    ),
    (
        "rping, QP by hand",
        "rping -s -q -v -V -a {address} -p {port} -C 100",
        "rping -c -q -v -V -a {address} -p {port} -C 100",
        RPING_SAYS,
    ),
];

/// Programs that connect QPs by number and GID.
const BY_NUMBER: &[Line] = &[
    (
        "ibv_rc_pingpong",
        "ibv_rc_pingpong -g 0 -c -p {port}",
        "ibv_rc_pingpong -g 0 -c -p {port} {address}",
        &["1000 iters in"],
    ),
    (
        "ibv_rc_pingpong, events",
        "ibv_rc_pingpong -g 0 -c -e -s 65536 -n 200 -p {port}",
        "ibv_rc_pingpong -g 0 -c -e -s 65536 -n 200 -p {port} {address}",
        &["200 iters in"],
    ),
    (
        "ibv_rc_pingpong, ibv_wr",
        "ibv_rc_pingpong -g 0 -c -N -p {port}",
        "ibv_rc_pingpong -g 0 -c -N -p {port} {address}",
        &["1000 iters in"],
    ),
    (
        "ibv_srq_pingpong",
        "ibv_srq_pingpong -g 0 -c -p {port}",
        "ibv_srq_pingpong -g 0 -c -p {port} {address}",
        &["1000 iters in"],
    ),
    (
        "ibv_srq_pingpong, events",
        "ibv_srq_pingpong -g 0 -c -e -q 4 -n 100 -p {port}",
        "ibv_srq_pingpong -g 0 -c -e -q 4 -n 100 -p {port} {address}",
        &["100 iters in"],
    ),
];

/// perftest's options, and the programs that have them.
const PERFTEST: &[(&str, &[&str])] = &[
    ("-a", &["write_bw", "read_bw", "send_bw", "write_lat", "read_lat", "send_lat"]),
    ("-a -q 8", &["write_bw", "read_bw", "send_bw"]),
    ("-a -b", &["write_bw", "read_bw", "send_bw"]),
    ("-s 64 -I 64", &["write_bw", "send_bw", "write_lat", "send_lat"]),
    ("-s 65536 -e", &["read_bw", "send_bw", "read_lat", "send_lat"]),
    // ib_send_bw on roce only: see `sleeps`.
    ("-s 4096 -q 8 -b -e", &["read_bw", "send_bw"]),
    ("-A FETCH_AND_ADD", &["atomic_bw", "atomic_lat"]),
    ("-A CMP_AND_SWAP", &["atomic_bw", "atomic_lat"]),
    ("-A FETCH_AND_ADD -q 8 -b", &["atomic_bw"]),
];

/// Debian 13's programs: personality, options of both ends.
const DEBIAN_13: &[(&str, &str)] = &[
    ("iwarp", "ib_write_bw -R -p {port} -n 50"),
    ("iwarp", "ib_send_bw -R -s 64 -I 64 -p {port} -n 50"),
    ("iwarp", "ib_atomic_lat -R -p {port} -n 50"),
    ("roce", "ib_write_bw -a -p {port} -n 50"),
    ("roce", "ib_read_bw -q 8 -b -p {port} -n 50"),
    ("roce", "ib_send_lat -s 65536 -e -p {port} -n 51"),
    ("roce", "ib_atomic_bw -p {port} -n 50"),
    ("roce", "ibv_rc_pingpong -g 0 -c -p {port}"),
];

/// What a user without rights runs: personality, what is different in the server, client.
const ORDINARY: &[(&str, &str, &str)] = &[
    (
        "iwarp",
        "rping -s -a {address} -p {port} -C 100",
        "rping -c -V -a {address} -p {port} -C 100",
    ),
    ("iwarp", "ib_write_bw -R -p {port} -n 50", "ib_write_bw -R -p {port} -n 50 {address}"),
    ("roce", "ibv_rc_pingpong -g 0 -c -p {port}", "ibv_rc_pingpong -g 0 -c -p {port} {address}"),
    ("roce", "ib_send_lat -e -p {port} -n 51", "ib_send_lat -e -p {port} -n 51 {address}"),
];

/// qperf's tests of reliable connections, one after the other; the last ends the server.
const QPERF: &str = "rc_bw rc_bi_bw rc_lat rc_rdma_read_bw rc_rdma_write_lat ver_rc_fetch_add quit";

/// Data that went there and back. The client's own last line, about the end of the connection, is
/// none of it: in rdma-core 44 `main` returns while `cm_thread` is about to print it.
const RPING_SAYS: &[&str] = &["\nping data: rdma-ping-99", "server ping data: rdma-ping-99"];

/// The largest size that rping takes.
const RPING_MOST: usize = 65_535;

/// fio's verb, and the options that let the receiving end check what it gets.
const FIO: &[(&str, &str)] = &[("write", ""), ("read", ""), ("send", " --verify=crc32c")];

/// libfabric's providers and the kind of endpoint on each.
const LIBFABRIC: &[(&str, &str)] = &[("verbs", "msg"), ("verbs;ofi_rxm", "rdm")];

/// All rows.
pub(super) fn rows(full: bool) -> Vec<Row> {
    let mut rows = Vec::new();
    for personality in ["iwarp", "roce"] {
        rows.extend(ALONE.iter().map(|line| plain(line, personality)));
    }
    rows.extend([64, 100, 4096, 16384, RPING_MOST].map(|size| rping(size, full)));
    rows.extend(CONNECTED.iter().map(|line| plain(line, "iwarp")));
    rows.extend(perftest("iwarp", " -R", full));
    rows.extend(FIO.iter().map(|(verb, options)| fio(verb, options)));
    rows.extend(LIBFABRIC.iter().map(|(provider, endpoint)| libfabric(provider, endpoint)));
    rows.extend(BY_NUMBER.iter().map(|line| plain(line, "roce")));
    rows.extend(perftest("roce", "", full));
    rows.extend(["iwarp", "roce"].map(qperf));
    rows.extend(ORDINARY.iter().map(|(personality, server, client)| Row {
        name: format!("{} as an ordinary user ({personality})", server.replace(" -p {port}", "")),
        server: Some((*server).to_owned()),
        site: Site::Ordinary,
        ..plain(&("", "", client, &[]), personality)
    }));
    if full {
        rows.extend(DEBIAN_13.iter().map(|(personality, work)| debian13(personality, work)));
    }
    rows
}

/// Three ranks on libfabric's verbs provider, which says in the figures that it was in use.
pub(super) fn mpi(personality: &'static str) -> Row {
    Row {
        name: format!("OpenMPI, verbs;ofi_rxm ({personality})"),
        client: "mpirun --allow-run-as-root --oversubscribe -np 3 --mca pml cm --mca mtl ofi \
                 --mca mtl_ofi_provider_include verbs;ofi_rxm --mca btl self ./mpi"
            .to_owned(),
        personality,
        says: &["3 ranks agree", "outboard: queue pair"],
        environment: &[("OUTBOARD_STATS", "1")],
        site: Site::Interface,
        seconds: 60,
        ..Row::default()
    }
}

fn qperf(personality: &'static str) -> Row {
    Row {
        name: format!("qperf ({personality})"),
        server: Some("qperf -lp {port}".to_owned()),
        client: format!("qperf -lp {{port}} {{address}} -to 30 -t 1 -cm 1 {QPERF}"),
        personality,
        says: &["rc_bi_bw:", "ver_rc_fetch_add:", "quit:"],
        seconds: 60,
        ..Row::default()
    }
}

fn debian13(personality: &'static str, work: &str) -> Row {
    Row {
        name: format!("{}, Debian 13 ({personality})", work.replace(" -p {port}", "")),
        personality,
        server: Some(work.to_owned()),
        client: format!("{work} {{address}}"),
        site: Site::Debian13,
        seconds: 120,
        ..Row::default()
    }
}

fn plain(&(name, server, client, says): &Line, personality: &'static str) -> Row {
    Row {
        name: format!("{name} ({personality})"),
        personality,
        server: (!server.is_empty()).then(|| server.to_owned()),
        client: client.to_owned(),
        says,
        seconds: 30,
        ..Row::default()
    }
}

/// Both ends check the data (-V) and print it (-v).
fn rping(size: usize, full: bool) -> Row {
    let count = if full { 10_000 } else { 1_000 };
    let end = |role| format!("rping {role} -v -V -a {{address}} -p {{port}} -C {count} -S {size}");
    Row {
        name: format!("rping, {size} B (iwarp)"),
        personality: "iwarp",
        server: Some(end("-s")),
        client: end("-c"),
        says: RPING_SAYS,
        seconds: 60,
        ..Row::default()
    }
}

/// When sampled, all sizes at 8 QPs and in both directions are iWARP's: each size takes perftest
/// half a second, whatever is done with it.
fn sizes(personality: &str, options: &str, full: bool) -> String {
    let fewer = !full && personality == "roce" && options.starts_with("-a -");
    if fewer { options.replacen("-a", "-s 65536", 1) } else { options.to_owned() }
}

/// Whether the program may sleep for ever, on hardware too. On iWARP ib_send_bw counts receives by
/// a credit that the peer writes into its memory (`send_rcredit` in its source), and with -e it
/// sleeps when as many messages are out as receives are posted: no completion is due then. It posts
/// as many as there are messages, but of an odd number one more, which helps unless both ends send
/// (-b).
fn sleeps(personality: &str, program: &str, options: &str) -> bool {
    personality == "iwarp" && program == "send_bw" && options.contains("-e")
}

fn perftest(personality: &'static str, connect: &str, full: bool) -> Vec<Row> {
    let row = |program: &str, options: &str| {
        let count = match options {
            _ if sleeps(personality, program, options) => 51,
            _ if full => 1_000,
            // The program refuses smaller values.
            all_sizes if all_sizes.contains("-a") => 5,
            _ => 50,
        };
        let work = format!("ib_{program} -p {{port}} -n {count} {options}{connect}");
        Row {
            name: format!("ib_{program} {options}{connect} ({personality})"),
            personality,
            client: format!("{work} {{address}}"),
            server: Some(work),
            says: &["#bytes"],
            seconds: if full { 900 } else { 120 },
            ..Row::default()
        }
    };
    let programs = PERFTEST.iter().flat_map(|(options, programs)| {
        let options = sizes(personality, options, full);
        let able = programs
            .iter()
            .filter(|program| !(sleeps(personality, program, &options) && options.contains("-b")));
        able.map(|program| row(program, &options)).collect::<Vec<_>>()
    });
    programs.collect()
}

fn fio(verb: &str, options: &str) -> Row {
    let work = format!(
        "fio --ioengine=rdma --port={{port}} --bs=64k --size=64m --iodepth=16 --thread{options}"
    );
    Row {
        name: format!("fio, {verb} (iwarp)"),
        personality: "iwarp",
        server: Some(format!("{work} --name=receiver --rw=read")),
        client: format!("{work} --name=sender --rw=write --verb={verb} --hostname={{address}}"),
        says: &["err= 0"],
        seconds: 60,
        ..Row::default()
    }
}

fn libfabric(provider: &str, endpoint: &str) -> Row {
    let work = format!("fi_pingpong -p {provider} -e {endpoint} -I 200 -c");
    Row {
        name: format!("fi_pingpong, {provider} {endpoint} (iwarp)"),
        personality: "iwarp",
        server: Some(format!("{work} -B {{port}}")),
        client: format!("{work} -P {{port}} {{address}}"),
        says: &["bytes", "1m"],
        site: Site::Interface,
        seconds: 60,
        ..Row::default()
    }
}
