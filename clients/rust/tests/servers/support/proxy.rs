//! A network between a client and a server that can be cut: packets vanish, and nobody is told.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::Server;

pub struct Proxy {
    port: u16,
    /// The port of the server.
    target: Arc<AtomicU16>,
    network: Arc<Mutex<Network>>,
}

#[derive(Default)]
struct Network {
    /// Whether packets to the server vanish, and those from it.
    is_cut: [bool; 2],
    /// Whether requests that block do not arrive, nor what follows them on their connections.
    is_slow_to_block: bool,
    is_closed: bool,
    streams: Vec<TcpStream>,
}

impl Proxy {
    pub fn to(server: &Server) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let network = Arc::new(Mutex::new(Network::default()));
        let target = Arc::new(AtomicU16::new(server.port()));
        let (leads_to, shared) = (Arc::clone(&target), Arc::clone(&network));
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.expect("a connection");
                if shared.lock().expect("a network").is_closed {
                    return;
                }
                let Ok(server) = TcpStream::connect(("127.0.0.1", leads_to.load(Ordering::SeqCst)))
                else {
                    continue;
                };
                let ends = [&client, &server].map(|end| end.try_clone().expect("a clone"));
                shared.lock().expect("a network").streams.extend(ends);
                carry(&client, &server, 0, &shared);
                carry(&server, &client, 1, &shared);
            }
        });
        Proxy {
            port,
            target,
            network,
        }
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// From now on new connections lead to another server, as a name does that was changed.
    pub fn lead_to(&self, server: &Server) {
        self.target.store(server.port(), Ordering::SeqCst);
    }

    /// From now on nothing arrives, in either direction; connections stay open.
    pub fn cut(&self) {
        self.network.lock().expect("a network").is_cut = [true, true];
    }

    /// From now on the server's replies do not arrive; requests do.
    pub fn cut_replies(&self) {
        self.network.lock().expect("a network").is_cut = [false, true];
    }

    /// From now on requests that block are on their way, and do not arrive.
    pub fn delay_blocks(&self) {
        self.network.lock().expect("a network").is_slow_to_block = true;
    }

    /// From now on everything arrives, also what was sent meanwhile.
    pub fn heal(&self) {
        let mut network = self.network.lock().expect("a network");
        network.is_cut = [false, false];
        network.is_slow_to_block = false;
    }

    /// Closes all connections that are open now.
    pub fn close_all(&self) {
        let streams = std::mem::take(&mut self.network.lock().expect("a network").streams);
        for stream in streams {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.network.lock().expect("a network").is_closed = true;
        self.close_all();
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn carry(from: &TcpStream, to: &TcpStream, direction: usize, network: &Arc<Mutex<Network>>) {
    let mut from = from.try_clone().expect("a clone");
    let mut to = to.try_clone().expect("a clone");
    let network = Arc::clone(network);
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            loop {
                let state = network.lock().expect("a network");
                if state.is_closed {
                    return;
                }
                let text = &buffer[..length];
                let is_late = state.is_slow_to_block
                    && direction == 0
                    && text.windows(5).any(|word| word == b"BLOCK");
                if !state.is_cut[direction] && !is_late {
                    break;
                }
                drop(state);
                thread::sleep(Duration::from_millis(10));
            }
            if to.write_all(&buffer[..length]).is_err() {
                break;
            }
        }
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    });
}
