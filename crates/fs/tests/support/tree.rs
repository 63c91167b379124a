//! A node with a tree in its region `fs`, as clients and mounts need it.

use crate::node::Node;
use outboard_active::{ActiveCall, ActiveClient, ActiveClientOptions, ModuleHash, Outcome};
use outboard_fs::client::{FsClient, FsClientOptions};
use outboard_fs::protocol::{FsInitArgs, FsLayout};
use outboard_secure::Credentials;
use outboard_testkit::PATIENCE;
use outboard_verbs::Context;
use rustix::process::{Signal, getegid, geteuid, kill_process};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// A node that serves active code, and has an empty tree.
pub(crate) struct TreeNode {
    node: Node,
    own: Arc<Credentials>,
}

impl TreeNode {
    pub(crate) fn start() -> Self {
        let modules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../modules/built");
        let table = format!(
            "[active]\ntime_ms = 20000\nmodules = {modules:?}\n\
             [active.regions.fs]\nsize = \"64MiB\"\n"
        );
        // What is compiled once is there for all nodes.
        let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
        let directory = tempfile::tempdir().expect("a directory");
        let node = Node::start_with(directory, &table, &cache);
        let own = node.identity();
        let node = Self { node, own };
        node.make_tree();
        node
    }

    fn make_tree(&self) {
        let options = ActiveClientOptions { limit: PATIENCE, ..ActiveClientOptions::default() };
        let context = Context::open().expect("a context");
        let begun = Instant::now();
        // The service compiles its modules first.
        let mut client = loop {
            match ActiveClient::connect(&context, self.node.dial(&self.own), options) {
                Ok(client) => break client,
                Err(error) => assert!(begun.elapsed() < PATIENCE, "{error}"),
            }
        };
        let region = client.attach("fs").expect("attached");
        let module = include_bytes!("../../../../modules/built/fs.wasm");
        let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
        let (blocks, first, mode) = (1 << 16, 8, 0o755);
        let args = FsInitArgs { blocks, first, uid, gid, mode, ..FsInitArgs::default() }.bytes();
        let call = ActiveCall::new(&region, ModuleHash::of(module), "init", &args);
        let outcome = client.execute(&call).expect("an outcome");
        assert!(matches!(outcome, Outcome::Done { .. }), "{outcome:?}");
    }

    /// A client of the tree.
    pub(crate) fn client(&self, options: &FsClientOptions) -> Arc<FsClient> {
        let options = FsClientOptions { connect: PATIENCE, tells_opens: false, ..*options };
        let context = Context::open().expect("a context");
        let client = FsClient::connect(&context, self.node.dial(&self.own), &options);
        client.expect("connected")
    }

    fn signal(&self, signal: Signal) {
        let service = self.node.service().expect("it runs");
        kill_process(service, signal).expect("it is there");
    }

    /// Has the service answer nothing until it [goes on](Self::go_on).
    pub(crate) fn stop_service(&self) {
        self.signal(Signal::STOP);
    }

    pub(crate) fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    pub(crate) fn directory(&self) -> &Path {
        self.node.directory.path()
    }
}
