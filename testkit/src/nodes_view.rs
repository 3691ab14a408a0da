//! Reads CLUSTER NODES: how one node sees the cluster.

use crate::call;
use crate::client::Client;

pub(crate) struct NodesView {
    pub(crate) lines: Vec<NodeLine>,
}

pub(crate) struct NodeLine {
    id: String,
    flags: Vec<String>,
    pub(crate) primary: String,
    pub(crate) epoch: u64,
    pub(crate) is_connected: bool,
    pub(crate) slots: Vec<String>,
}

impl NodesView {
    #[track_caller]
    pub(crate) fn of(client: &mut Client) -> NodesView {
        let text = call!(client, "CLUSTER", "NODES").as_str().to_owned();
        let lines = text.lines().map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let [id, _, flags, primary, _, _, epoch, link, slots @ ..] = &words[..] else {
                panic!("not a line of CLUSTER NODES: {line:?}");
            };
            NodeLine {
                id: (*id).to_owned(),
                flags: flags.split(',').map(str::to_owned).collect(),
                primary: (*primary).to_owned(),
                epoch: epoch.parse().expect("an epoch is a number"),
                is_connected: *link == "connected",
                slots: slots.iter().map(|slot| (*slot).to_owned()).collect(),
            }
        });
        NodesView {
            lines: lines.collect(),
        }
    }

    pub(crate) fn line(&self, id: &str) -> Option<&NodeLine> {
        self.lines.iter().find(|line| line.id == id)
    }
}

impl NodeLine {
    pub(crate) fn has_flag(&self, flag: &str) -> bool {
        self.flags.iter().any(|mine| mine == flag)
    }

    pub(crate) fn serves(&self, slot: u16) -> bool {
        self.slots.iter().any(|range| {
            // Slots that move are in brackets, behind the served ones, and do not parse.
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let bounds = (first.parse::<u16>(), last.parse::<u16>());
            matches!(bounds, (Ok(first), Ok(last)) if (first..=last).contains(&slot))
        })
    }
}
