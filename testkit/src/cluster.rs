//! A cluster for one test: three primaries, and a replica for each if the test asks for them.
//!
//! It is formed with CLUSTER commands, without tools, and is ready when all nodes agree on slots and roles. That takes
//! a little over two seconds, because a primary serves nothing in its first two (CLUSTER_WRITABLE_DELAY). So a test
//! checks as much as it can with one cluster.
//!
//! The bus port is the server's default, 10000 above the port; `ports` takes care that it is free.

use std::ops::{Index, IndexMut, Range};
use std::time::{Duration, Instant};

use crate::call;
use crate::client::Client;
use crate::eventually::eventually;
use crate::nodes_view::NodesView;
use crate::reply::expect_ok;
use crate::router::Router;
use crate::server::Server;

pub(crate) const PRIMARIES: usize = 3;
const SLOTS: u16 = 16384;

/// The node timeout while the cluster forms. Nodes exchange news every half of it, so it is short.
pub(crate) const FORMING_NODE_TIMEOUT_MS: u64 = 1_000;

/// The deadline for nodes to agree. On a busy machine the gossip of six nodes takes long.
const AGREE_WITHIN: Duration = Duration::from_secs(30);

/// After this time a replica has given up a manual failover: the server allows it 5 s.
const MANUAL_FAILOVER_WITHIN: Duration = Duration::from_secs(6);

/// Running nodes. `cluster[0]`, `[1]`, `[2]` began as primaries, `[3]`, `[4]`, `[5]` as their replicas.
pub struct Cluster {
    pub nodes: Vec<Server>,
    pub(crate) ids: Vec<String>,
}

impl Index<usize> for Cluster {
    type Output = Server;

    fn index(&self, node: usize) -> &Server {
        &self.nodes[node]
    }
}

impl IndexMut<usize> for Cluster {
    fn index_mut(&mut self, node: usize) -> &mut Server {
        &mut self.nodes[node]
    }
}

impl Cluster {
    #[track_caller]
    pub(crate) fn form(nodes: Vec<Server>, first_epoch: u64) -> Cluster {
        let mut clients: Vec<_> = nodes.iter().map(Server::connect).collect();
        let ids = clients
            .iter_mut()
            .map(|client| call!(client, "CLUSTER", "MYID").as_str().to_owned())
            .collect();
        let cluster = Cluster { nodes, ids };
        for (n, client) in clients.iter_mut().enumerate() {
            // Different epochs from the start: nodes with equal epochs change them later, perhaps during a test.
            let epoch = first_epoch + n as u64;
            expect_ok(&call!(client, "CLUSTER", "SET-CONFIG-EPOCH", epoch));
            if n < PRIMARIES {
                let Range { start, end } = slots_of(n);
                expect_ok(&call!(client, "CLUSTER", "ADDSLOTSRANGE", start, end - 1));
            }
            // Every pair meets by command, which is faster than by gossip.
            for node in &cluster.nodes[..n] {
                expect_ok(&call!(client, "CLUSTER", "MEET", "127.0.0.1", node.port()));
            }
        }
        for (client, primary) in clients[PRIMARIES..].iter_mut().zip(&cluster.ids) {
            let what = "a replica that knows its primary";
            cluster.agree(client, what, |client| {
                call!(client, "CLUSTER", "REPLICATE", primary) == "OK"
            });
        }
        for (n, client) in clients.iter_mut().enumerate() {
            let what = format!("a cluster as node {n} should see it");
            cluster.agree(client, &what, |client| cluster.is_as_formed(client));
        }
        for node in cluster.nodes.iter().skip(PRIMARIES) {
            node.wait_for_sync();
        }
        cluster
    }

    /// Waits until `agrees`. Meanwhile repeats CLUSTER MEET for nodes that this one does not know: a handshake that
    /// takes longer than the node timeout is given up, which happens on a busy machine.
    #[track_caller]
    fn agree(&self, client: &mut Client, what: &str, mut agrees: impl FnMut(&mut Client) -> bool) {
        let patience = Duration::from_millis(2 * FORMING_NODE_TIMEOUT_MS);
        let mut met = Instant::now();
        eventually(what, AGREE_WITHIN, || {
            let done = agrees(client);
            if !done && met.elapsed() >= patience {
                met = Instant::now();
                let view = NodesView::of(client);
                for (node, id) in self.nodes.iter().zip(&self.ids) {
                    if view.line(id).is_none() {
                        expect_ok(&call!(client, "CLUSTER", "MEET", "127.0.0.1", node.port()));
                    }
                }
            }
            done
        });
    }

    /// Whether a node sees every primary with its slots and every replica with its primary, is connected to all of
    /// them, and reports the cluster as ok.
    fn is_as_formed(&self, client: &mut Client) -> bool {
        let view = NodesView::of(client);
        let nodes_are_right = self.ids.iter().enumerate().all(|(n, id)| {
            view.line(id).is_some_and(|line| {
                let is_right = if n < PRIMARIES {
                    let Range { start, end } = slots_of(n);
                    line.has_flag("master") && line.slots == [format!("{start}-{}", end - 1)]
                } else {
                    line.has_flag("slave") && line.primary == self.ids[n - PRIMARIES]
                };
                is_right && line.is_connected
            })
        });
        nodes_are_right && view.lines.len() == self.ids.len() && is_ok(client)
    }

    /// The number of nodes, replicas included.
    #[expect(
        clippy::len_without_is_empty,
        reason = "there is no cluster without nodes"
    )]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The addresses of all nodes.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Server::url).collect()
    }

    /// The id of a node in the cluster.
    pub fn id(&self, node: usize) -> &str {
        &self.ids[node]
    }

    /// A key in a slot that this primary had from the start: the name, or the name and a number; no hash tag.
    #[track_caller]
    pub fn key_of(&self, primary: usize, name: &str) -> String {
        let mut client = self.nodes[primary].connect();
        let slots = slots_of(primary);
        let names = (0..1_000).map(|n| match n {
            0 => name.to_owned(),
            n => format!("{name}{n}"),
        });
        names
            .into_iter()
            .find(|key| slots.contains(&slot_of(&mut client, key)))
            .expect("one name in three is in a primary's slots")
    }

    /// The slot of a key.
    #[track_caller]
    pub fn slot(&self, key: &str) -> u16 {
        slot_of(&mut self.nodes[0].connect(), key)
    }

    /// The node that serves the slot of a key, by its own view.
    #[track_caller]
    pub fn owner_of(&self, key: &str) -> usize {
        let slot = self.slot(key);
        let owns = |(node, id): (&Server, &String)| {
            let view = NodesView::of(&mut node.connect());
            view.line(id).is_some_and(|line| line.serves(slot))
        };
        let owner = self.nodes.iter().zip(&self.ids).position(owns);
        owner.expect("a node serves every slot")
    }

    /// A client that follows redirections and begins with this node.
    #[track_caller]
    pub fn router_from(&self, node: usize) -> Router {
        Router::to(self.nodes[node].port())
    }

    /// Waits until these nodes report the cluster as ok.
    #[track_caller]
    pub fn wait_until_ok(&self, nodes: &[usize]) {
        self.wait_until(nodes, "the cluster to be ok", is_ok);
    }

    /// Waits until these nodes report the cluster as down.
    #[track_caller]
    pub fn wait_until_down(&self, nodes: &[usize]) {
        self.wait_until(nodes, "the cluster to be down", |client| !is_ok(client));
    }

    /// Waits until these nodes see `owner` as serving the slot, with the owner's own epoch at least: with an older epoch, a
    /// late message of another node could still change that. The owner's own may be the older one: Valkey 8 sets the epoch
    /// of a promoted node back to that of its promotion when the node hears late that its old primary is its replica.
    #[track_caller]
    pub fn wait_for_owner(&self, nodes: &[usize], slot: u16, owner: usize) {
        let what = format!("node {owner} to serve slot {slot}");
        let id = &self.ids[owner];
        let mut own = self.nodes[owner].connect();
        self.wait_until(nodes, &what, |client| {
            let (own, view) = (NodesView::of(&mut own), NodesView::of(client));
            let (Some(own), Some(line)) = (own.line(id), view.line(id)) else {
                return false;
            };
            line.has_flag("master") && line.serves(slot) && line.epoch >= own.epoch
        });
    }

    #[track_caller]
    fn wait_until(&self, nodes: &[usize], what: &str, mut holds: impl FnMut(&mut Client) -> bool) {
        for node in nodes {
            let mut client = self.nodes[*node].connect();
            eventually(&format!("{what}, says node {node}"), AGREE_WITHIN, || {
                holds(&mut client)
            });
        }
    }

    /// `CLUSTER FAILOVER` at a replica, repeated if the replica gives up. Returns when `nodes`, among them the replica
    /// and its old primary, see it as serving the slot.
    #[track_caller]
    pub fn fail_over_to(&self, replica: usize, slot: u16, nodes: &[usize]) {
        let mut client = self.nodes[replica].connect();
        let id = &self.ids[replica];
        let own = NodesView::of(&mut client);
        let primary = own.line(id).map(|line| line.primary.clone());
        // The primary hands over, and the other primaries vote, only when they know the node as its replica.
        let primaries: Vec<usize> = nodes
            .iter()
            .copied()
            .filter(|node| *node != replica)
            .collect();
        self.wait_until(&primaries, "the replica to be known as one", |client| {
            let view = NodesView::of(client);
            let known = view.line(id).filter(|line| line.is_connected);
            known.map(|line| &line.primary) == primary.as_ref()
        });
        let mut asked = None;
        self.wait_until(&[replica], "the replica to be promoted", |client| {
            let own = NodesView::of(client);
            let is_promoted = own.line(id).is_some_and(|line| line.has_flag("master"));
            let is_given_up = asked.is_none_or(|at: Instant| at.elapsed() > MANUAL_FAILOVER_WITHIN);
            if !is_promoted && is_given_up {
                expect_ok(&call!(client, "CLUSTER", "FAILOVER"));
                asked = Some(Instant::now());
            }
            is_promoted
        });
        self.wait_for_owner(nodes, slot, replica);
    }
}

/// The third of all slots that a primary has from the start.
fn slots_of(primary: usize) -> Range<u16> {
    let bound = |n: usize| (usize::from(SLOTS) * n / PRIMARIES) as u16;
    bound(primary)..bound(primary + 1)
}

#[track_caller]
fn slot_of(client: &mut Client, key: &str) -> u16 {
    let slot = call!(client, "CLUSTER", "KEYSLOT", key).as_int();
    u16::try_from(slot).expect("slots fit")
}

#[track_caller]
fn is_ok(client: &mut Client) -> bool {
    let info = call!(client, "CLUSTER", "INFO");
    info.as_str().lines().any(|line| line == "cluster_state:ok")
}
