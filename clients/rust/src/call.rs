//! What is sent in one write.

use std::time::Duration;

use crate::cancel::Cancel;
use crate::effort::Effort;
use crate::request::Command;
use crate::server::{Server, Slot};

/// Commands to send in one write, and how long to try.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    pub(crate) commands: &'a [Command],
    /// How long the server may wait before it answers; `None` of commands that it answers at once.
    pub(crate) blocks: Option<Duration>,
    pub(crate) effort: Effort,
    /// Whether an idle connection will not do, because the last one has failed.
    pub(crate) is_afresh: bool,
    /// Whether it is one of the renewals, which have a connection of their own.
    pub(crate) is_renewal: bool,
    /// Whether the answer is to be confirmed on the connection that it came on.
    pub(crate) keeps_line: bool,
    pub(crate) cancel: Option<&'a Cancel>,
}

impl<'a> Call<'a> {
    pub(crate) fn new(command: &'a Command, effort: Effort) -> Call<'a> {
        Call {
            commands: std::slice::from_ref(command),
            blocks: None,
            effort,
            is_afresh: false,
            is_renewal: false,
            keeps_line: false,
            cancel: None,
        }
    }

    /// The slot of the key in a cluster.
    pub(crate) fn slot(&self, server: &Server) -> Option<Slot> {
        let key = self.commands.first()?.key.as_deref()?;
        server.slot(key)
    }

    /// How long to wait for the replies now.
    pub(crate) fn limit(&self) -> Duration {
        self.blocks.unwrap_or_default() + self.effort.limit()
    }
}
