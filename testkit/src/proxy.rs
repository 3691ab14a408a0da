//! A network between clients and a server that can be slow, or cut: packets vanish, and nobody is told.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;

use crate::server::Server;

pub struct Proxy {
    port: u16,
    network: Arc<Network>,
}

#[derive(Default)]
struct Network {
    state: Mutex<State>,
    has_changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The port of the server.
    target: u16,
    /// Whether packets to the server vanish, and those from it.
    is_cut: [bool; 2],
    /// Requests with this word do not arrive, nor what follows them on their connections.
    delayed: Option<&'static str>,
    /// The reply to the next request with this word does not arrive.
    unanswered: Option<&'static str>,
    is_closed: bool,
    streams: Vec<TcpStream>,
}

impl Network {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no carrier panics")
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.has_changed.notify_all();
    }

    /// Whether the reply to this request is not to arrive: one request, once.
    fn loses_reply(&self, request: &[u8]) -> bool {
        let mut state = self.state();
        let is_it = |word: &str| {
            request
                .windows(word.len())
                .any(|window| window == word.as_bytes())
        };
        state.unanswered.take_if(|word| is_it(word)).is_some()
    }

    /// Waits until these bytes may arrive. Returns whether there still is a network.
    fn lets_through(&self, bytes: &[u8], direction: usize) -> bool {
        let is_held = |state: &mut State| {
            let is_late = |word: &str| {
                let mut windows = bytes.windows(word.len());
                direction == 0 && windows.any(|window| window == word.as_bytes())
            };
            !state.is_closed && (state.is_cut[direction] || state.delayed.is_some_and(is_late))
        };
        let state = self.has_changed.wait_while(self.state(), is_held);
        !state.expect("no carrier panics").is_closed
    }
}

impl Proxy {
    #[track_caller]
    pub fn to(server: &Server) -> Proxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let network = Arc::<Network>::default();
        let proxy = Proxy {
            port,
            network: Arc::clone(&network),
        };
        proxy.lead_to(server);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let mut state = network.state();
                if state.is_closed {
                    return;
                }
                let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, state.target)) else {
                    continue;
                };
                let ends = [&client, &server].map(|end| end.try_clone().expect("a clone"));
                state.streams.extend(ends);
                drop(state);
                carry(&client, &server, 0, &network);
                carry(&server, &client, 1, &network);
            }
        });
        proxy
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// From now on new connections lead to another server, as a name does that was changed.
    pub fn lead_to(&self, server: &Server) {
        self.network.change(|state| state.target = server.port());
    }

    /// From now on nothing arrives, in either direction; connections stay open, also those that an end closes.
    pub fn cut(&self) {
        self.network.change(|state| state.is_cut = [true, true]);
    }

    /// From now on the server's replies do not arrive; requests do.
    pub fn cut_replies(&self) {
        self.network.change(|state| state.is_cut = [false, true]);
    }

    /// From now on requests with this word are on their way, and do not arrive.
    pub fn delay(&self, word: &'static str) {
        self.network.change(|state| state.delayed = Some(word));
    }

    /// The next request with this word arrives, and its connection is closed before the reply.
    pub fn lose_reply(&self, word: &'static str) {
        self.network.change(|state| state.unanswered = Some(word));
    }

    /// From now on everything arrives, also what was sent meanwhile.
    pub fn heal(&self) {
        self.network
            .change(|state| (state.is_cut, state.delayed) = ([false, false], None));
    }

    /// Closes all connections that are open now.
    pub fn close_all(&self) {
        for stream in std::mem::take(&mut self.network.state().streams) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.network.change(|state| state.is_closed = true);
        self.close_all();
        // Wakes the thread that accepts.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

/// Carries what one end sends to the other, and then its end.
fn carry(from: &TcpStream, to: &TcpStream, direction: usize, network: &Arc<Network>) {
    let mut from = from.try_clone().expect("a clone");
    let mut to = to.try_clone().expect("a clone");
    let network = Arc::clone(network);
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        loop {
            let length = from.read(&mut buffer).unwrap_or_default();
            if !network.lets_through(&buffer[..length], direction) {
                return;
            }
            if direction == 0 && network.loses_reply(&buffer[..length]) {
                let _ = from.shutdown(Shutdown::Both);
                let _ = to.write_all(&buffer[..length]);
                // Only after the request the server reads that this is the end.
                let _ = to.shutdown(Shutdown::Write);
                return;
            }
            if length == 0 || to.write_all(&buffer[..length]).is_err() {
                break;
            }
        }
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    });
}
