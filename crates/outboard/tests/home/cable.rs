//! A cable to a server that can be cut: bytes of one way, of the other, or of both stay where they
//! are, and nobody is told. Connections made meanwhile are as silent.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// What is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    ToServer,
    FromServer,
    Both,
}

#[derive(Debug, Default)]
struct State {
    cut: Option<Cut>,
    open: Vec<TcpStream>,
    /// When the server got something last, and the longest time that it got nothing, since the cut.
    heard: Option<Instant>,
    silence: Duration,
}

impl State {
    fn hears(&mut self) {
        let now = Instant::now();
        let since = self.heard.replace(now).map_or(Duration::ZERO, |heard| now - heard);
        self.silence = self.silence.max(since);
    }
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    mended: Condvar,
}

/// See this file's first lines.
pub(crate) struct Cable {
    shared: Arc<Shared>,
    /// Where its client's end is.
    pub(crate) address: String,
}

impl Cable {
    pub(crate) fn to(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("known").to_string();
        let (shared, server) = (Arc::new(Shared::default()), server.to_owned());
        let all = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(&server)) else {
                    continue;
                };
                let ways = [(&client, &server, Cut::ToServer), (&server, &client, Cut::FromServer)];
                for (from, to, way) in ways {
                    let (from, to) = (from.try_clone(), to.try_clone());
                    let (from, to) = (from.expect("a descriptor"), to.expect("a descriptor"));
                    let shared = Arc::clone(&all);
                    thread::spawn(move || shared.carry(from, to, way));
                }
                let _no_delay = (client.set_nodelay(true), server.set_nodelay(true));
                all.state.lock().expect("sound").open.extend([client, server]);
            }
        });
        Self { shared, address }
    }

    pub(crate) fn cut(&self, what: Cut) {
        let mut state = self.shared.state.lock().expect("sound");
        (state.cut, state.silence) = (Some(what), Duration::ZERO);
        state.hears();
    }

    /// The longest time for which the server has heard nothing since the cut.
    pub(crate) fn silence(&self) -> Duration {
        let mut state = self.shared.state.lock().expect("sound");
        state.hears();
        state.silence
    }

    pub(crate) fn mend(&self) {
        self.shared.state.lock().expect("sound").cut = None;
        self.shared.mended.notify_all();
    }

    /// Ends what is connected; what has not been carried is lost.
    pub(crate) fn end_connections(&self) {
        for socket in self.shared.state.lock().expect("sound").open.drain(..) {
            // It may have ended.
            let _ended = socket.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    /// Carries bytes one way until an end closes.
    fn carry(&self, mut from: TcpStream, mut to: TcpStream, way: Cut) {
        let mut bytes = [0; 16 << 10];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            let state = self.state.lock().expect("sound");
            let is_cut =
                |state: &mut State| state.cut.is_some_and(|cut| cut == way || cut == Cut::Both);
            let mut state = self.mended.wait_while(state, is_cut).expect("sound");
            if way == Cut::ToServer {
                state.hears();
            }
            drop(state);
            if to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        // The other end may have gone first.
        let _ended = to.shutdown(Shutdown::Both);
    }
}
