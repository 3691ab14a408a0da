//! Reads CLUSTER NODES: how one node sees the cluster.

use super::client::{Client, call};

pub(super) struct NodesView {
    pub(super) lines: Vec<NodeLine>,
}

pub(super) struct NodeLine {
    id: String,
    flags: Vec<String>,
    pub(super) primary: String,
    pub(super) epoch: String,
    pub(super) is_connected: bool,
    pub(super) slots: Vec<String>,
}

impl NodesView {
    #[track_caller]
    pub(super) fn of(client: &mut Client) -> NodesView {
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
                epoch: (*epoch).to_owned(),
                is_connected: *link == "connected",
                slots: slots.iter().map(|slot| (*slot).to_owned()).collect(),
            }
        });
        NodesView {
            lines: lines.collect(),
        }
    }

    pub(super) fn line(&self, id: &str) -> Option<&NodeLine> {
        self.lines.iter().find(|line| line.id == id)
    }
}

impl NodeLine {
    pub(super) fn has_flag(&self, flag: &str) -> bool {
        self.flags.iter().any(|mine| mine == flag)
    }

    pub(super) fn serves(&self, slot: u16) -> bool {
        self.slots.iter().any(|range| {
            // Slots that move are in brackets, behind the served ones, and do not parse.
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let bounds = (first.parse::<u16>(), last.parse::<u16>());
            matches!(bounds, (Ok(first), Ok(last)) if (first..=last).contains(&slot))
        })
    }
}
