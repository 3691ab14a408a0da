//! Hosts that can be cut off: each a network namespace with an address of its own, all of them at one
//! bridge, which is in a namespace too.
//!
//! Nothing of it can be seen outside, so that addresses and names need not be free; and nothing of it has
//! to be cleaned up: a namespace lives as long as a process in it, and every process here dies with the
//! test process, however that ends. The test process itself stays where it is. It talks to a server on a
//! host over the server's socket in the file system, which a cut does not concern: so a story is beside
//! every server at once.
//!
//! Needs `unshare` and `nsenter` (util-linux) and `ip` (iproute2), and the right to make network
//! namespaces, or else user namespaces, in which one has that right. Where neither is to be had a story
//! fails and says what to do; `DSYNC_TEST_NO_NAMESPACES=1` leaves such stories out.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;

use super::process;

const LEAVE_OUT: &str = "DSYNC_TEST_NO_NAMESPACES";

/// What the hosts' addresses have in common. It may well be somebody's outside: the hosts' network does
/// not lead there.
const SUBNET: [u8; 3] = [10, 77, 0];

/// The ways to new network namespaces: by one's own right, or as root of a new user namespace.
const WAYS: [&[&str]; 2] = [&[], &["--user", "--map-root-user"]];

/// Hosts that reach each other, and nobody else.
pub struct Network {
    keeper: Keeper,
    hosts: AtomicU8,
}

impl Network {
    /// A network without hosts yet; or `None`, having said so, where such stories are to be left out.
    #[track_caller]
    pub fn new() -> Option<Network> {
        if std::env::var(LEAVE_OUT).is_ok_and(|value| !value.is_empty() && value != "0") {
            let story = thread::current().name().unwrap_or("a story").to_owned();
            // Not eprintln, whose text the test runner keeps to itself. A lost line is no failure.
            let _ = writeln!(io::stderr(), "{LEAVE_OUT} is set: LEFT OUT: {story}");
            return None;
        }
        let mut refusals = Vec::new();
        for way in WAYS {
            let unshare = ["unshare", "--net"].iter().chain(way);
            match Keeper::start(
                unshare.map(|word| word.to_string()).collect(),
                !way.is_empty(),
            ) {
                Ok(keeper) => {
                    let network = Network {
                        keeper,
                        hosts: AtomicU8::new(0),
                    };
                    run(
                        &network.keeper.entry,
                        "ip link add bridge type bridge && ip link set bridge up",
                    );
                    return Some(network);
                }
                Err(refusal) => refusals.push(refusal),
            }
        }
        panic!(
            "this story cuts hosts off in network namespaces, and none can be made here:\n{}\n\
             Run the tests as root, or allow user namespaces (sysctl user.max_user_namespaces above 0; \
             kernel.unprivileged_userns_clone=1 on older Debian; \
             kernel.apparmor_restrict_unprivileged_userns=0 on Ubuntu; in a container, its seccomp \
             profile forbids them); or set {LEAVE_OUT}=1 to leave such stories out.",
            refusals.join("\n")
        );
    }

    /// The process that keeps it.
    pub fn keeper(&self) -> u32 {
        self.keeper.child.id()
    }

    /// One more host, joined.
    #[track_caller]
    pub fn host(&self) -> Host {
        let number = self.hosts.fetch_add(1, Ordering::Relaxed) + 1;
        let mut unshare = self.keeper.entry.clone();
        unshare.extend(["unshare", "--net"].map(str::to_owned));
        let in_user_namespace = self.keeper.in_user_namespace;
        let keeper = Keeper::start(unshare, in_user_namespace)
            .unwrap_or_else(|refusal| panic!("no host within a network that there is: {refusal}"));
        let [a, b, c] = SUBNET;
        let host = Host {
            address: Ipv4Addr::new(a, b, c, number),
            port: format!("host{number}"),
            bridge_entry: self.keeper.entry.clone(),
            keeper,
        };
        run(
            &self.keeper.entry,
            &format!(
                "ip link add {} type veth peer name eth0 netns {}",
                host.port,
                host.keeper()
            ),
        );
        run(
            &host.keeper.entry,
            &format!(
                "ip link set lo up && ip address add {}/24 dev eth0 && ip link set eth0 up",
                host.address
            ),
        );
        host.join();
        host
    }
}

/// A host, which has its servers' processes to itself as far as the network goes, and nothing else.
pub struct Host {
    address: Ipv4Addr,
    /// The host's port of the bridge.
    port: String,
    bridge_entry: Vec<String>,
    keeper: Keeper,
}

impl Host {
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// The process that keeps it.
    pub fn keeper(&self) -> u32 {
        self.keeper.child.id()
    }

    /// From now on packets to and from this host are lost, in silence: connections stay open, and whoever
    /// is on them learns nothing.
    #[track_caller]
    pub fn cut_off(&self) {
        // Its link stays up, as when a switch fails somewhere behind the next one.
        run(
            &self.bridge_entry,
            &format!("ip link set {} nomaster", self.port),
        );
    }

    /// Ends a cut.
    #[track_caller]
    pub fn join(&self) {
        run(
            &self.bridge_entry,
            &format!("ip link set {} master bridge up", self.port),
        );
    }

    pub(super) fn place(&self) -> Place {
        Place {
            address: self.address,
            entry: self.keeper.entry.clone(),
        }
    }
}

/// Where a server is to run that is to run on a host.
#[derive(Clone)]
pub(super) struct Place {
    pub address: Ipv4Addr,
    /// What a command line begins with that is to be carried out there.
    pub entry: Vec<String>,
}

/// A process that does nothing, and so keeps the namespaces it is in.
struct Keeper {
    child: Child,
    entry: Vec<String>,
    in_user_namespace: bool,
}

impl Keeper {
    /// Starts it through a command that makes the namespaces; returns when they are there.
    fn start(unshare: Vec<String>, in_user_namespace: bool) -> Result<Keeper, String> {
        let shown = unshare.join(" ");
        let mut command = process::mortal_through(&unshare, "sh");
        command
            .args(["-c", "echo there && exec sleep infinity"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = process::spawn(command).map_err(|error| format!("{shown}: {error}"))?;
        let nsenter: &[&str] = if in_user_namespace {
            // Who made a user namespace is root in it already, and must not try to become it.
            &[
                "nsenter",
                "--net",
                "--user",
                "--preserve-credentials",
                "--target",
            ]
        } else {
            &["nsenter", "--net", "--target"]
        };
        let mut entry: Vec<String> = nsenter.iter().map(|word| word.to_string()).collect();
        entry.push(child.id().to_string());
        // Known to the guard before anything can go wrong.
        let mut keeper = Keeper {
            child,
            entry,
            in_user_namespace,
        };
        let mut line = String::new();
        let read = match keeper.child.stdout.take() {
            Some(output) => BufReader::new(output).read_line(&mut line),
            None => Ok(0),
        };
        if line == "there\n" {
            return Ok(keeper);
        }
        let mut errors = String::new();
        if let Some(mut output) = keeper.child.stderr.take() {
            // What cannot be read is not shown.
            let _ = output.read_to_string(&mut errors);
        }
        Err(format!("{shown}: {} ({read:?})", errors.trim()))
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // Nothing here may panic: the test may be panicking already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Carries out a line of shell in a namespace.
#[track_caller]
fn run(entry: &[String], line: &str) {
    let output = Command::new(&entry[0])
        .args(&entry[1..])
        .args(["sh", "-c", line])
        .stdin(Stdio::null())
        .output();
    match output {
        Ok(output) if output.status.success() => {}
        Ok(output) => panic!(
            "in a namespace `{line}` failed, with {}: {} (`ip` is in the package iproute2)",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        ),
        Err(error) => panic!("cannot run {} (util-linux): {error}", entry[0]),
    }
}
