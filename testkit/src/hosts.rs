//! Hosts that a test can cut off from each other: each is a network namespace with its own address, and all are
//! connected to one bridge, which is in a namespace too.
//!
//! Nothing of it is visible outside, so addresses and names need not be free there. Nothing has to be cleaned up: a
//! namespace lives as long as a process in it, and all these processes die with the test process. The test process
//! itself is in none of the namespaces. It connects to a server by the server's Unix socket, which works during a cut.
//!
//! Needs `unshare` and `nsenter` (util-linux), `ip` (iproute2), and the right to make network namespaces, or else user
//! namespaces, which give that right. Where both are forbidden, a test fails and says what to do;
//! `DSYNC_TEST_NO_NAMESPACES=1` leaves these tests out.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;

use crate::process;

const LEAVE_OUT: &str = "DSYNC_TEST_NO_NAMESPACES";

/// The first three bytes of the hosts' addresses. The same addresses may exist outside: the hosts cannot reach them.
const SUBNET: [u8; 3] = [10, 77, 0];

/// The two ways to make network namespaces: with the process's own rights, or as root of a new user namespace.
const WAYS: [&[&str]; 2] = [&[], &["--user", "--map-root-user"]];

/// Hosts that reach each other and nothing else.
pub struct Network {
    keeper: Keeper,
    hosts: AtomicU8,
}

impl Network {
    /// A network without hosts. `None`, after a line on standard error, where these tests are to be left out.
    #[track_caller]
    pub fn new() -> Option<Network> {
        if std::env::var(LEAVE_OUT).is_ok_and(|value| !value.is_empty() && value != "0") {
            let test = thread::current().name().unwrap_or("a test").to_owned();
            // Not eprintln, because the test runner captures its text. A lost line is no failure.
            let _ = writeln!(io::stderr(), "{LEAVE_OUT} is set: LEFT OUT: {test}");
            return None;
        }
        let mut refusals = Vec::new();
        for way in WAYS {
            let unshare = ["unshare", "--net"].iter().chain(way);
            match Keeper::start(unshare.map(ToString::to_string).collect(), !way.is_empty()) {
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
            "this test cuts hosts off in network namespaces, and none can be made here:\n{}\n\
             Run the tests as root, or allow user namespaces (sysctl user.max_user_namespaces above 0; \
             kernel.unprivileged_userns_clone=1 on older Debian; \
             kernel.apparmor_restrict_unprivileged_userns=0 on Ubuntu; in a container, its seccomp \
             profile forbids them); or set {LEAVE_OUT}=1 to leave such tests out.",
            refusals.join("\n")
        );
    }

    /// The process that keeps the bridge's namespace alive.
    pub fn keeper(&self) -> u32 {
        self.keeper.child.id()
    }

    /// Makes another host, connected to the others.
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

/// A host: a network namespace for servers. Files and processes are those of the machine.
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

    /// The process that keeps the host's namespace alive.
    pub fn keeper(&self) -> u32 {
        self.keeper.child.id()
    }

    /// Loses all packets to and from this host, until [`Host::join`]. Connections stay open and neither end learns of
    /// the cut.
    #[track_caller]
    pub fn cut_off(&self) {
        // The host's own link stays up, as when a switch further away fails.
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

    pub(crate) fn place(&self) -> HostPlace {
        HostPlace {
            address: self.address,
            entry: self.keeper.entry.clone(),
        }
    }
}

/// The host on which a server shall run.
#[derive(Clone)]
pub(crate) struct HostPlace {
    pub address: Ipv4Addr,
    /// The words before a command that run it on the host.
    pub entry: Vec<String>,
}

/// A process that sleeps: as long as it lives, its namespaces exist.
struct Keeper {
    child: Child,
    /// The words before a command that run it in these namespaces.
    entry: Vec<String>,
    in_user_namespace: bool,
}

impl Keeper {
    /// Starts the process by a command that makes the namespaces; returns when they exist.
    fn start(unshare: Vec<String>, in_user_namespace: bool) -> Result<Keeper, String> {
        let shown = unshare.join(" ");
        let mut command = process::mortal(&unshare, "sh");
        command
            .args(["-c", "echo there && exec sleep infinity"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = process::spawn(command).map_err(|error| format!("{shown}: {error}"))?;
        let nsenter: &[&str] = if in_user_namespace {
            // The user that made a user namespace is root in it already; nsenter must not try to become root.
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
        let mut entry: Vec<String> = nsenter.iter().map(ToString::to_string).collect();
        entry.push(child.id().to_string());
        // A `Keeper` first, so that a failure below still kills the process.
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
            // If this fails, the message has no error text.
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

/// Runs a line of shell in a namespace.
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
