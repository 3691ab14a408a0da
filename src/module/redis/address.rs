//! Where this server listens, as a text that is the same after a restart.

use super::config;
use super::context::Ctx;

/// More than a host name has on any system.
const MAX_HOST_NAME_LEN: usize = 256;

/// The host name, and the port: that for TLS if there is no other, and without any port the path of the Unix socket.
pub(crate) fn read(ctx: Ctx<'_>) -> Vec<u8> {
    // The server says one of its two ports, or 0 if it has none (server.c, genRedisInfoString).
    let port = ctx.server_info_u64(c"server", c"tcp_port").unwrap_or(0);
    let place = match port {
        0 => config::of_server(ctx, "unixsocket").unwrap_or_default(),
        port => port.to_string().into_bytes(),
    };
    [&host_name()[..], b":", &place].concat()
}

/// Empty if the system does not tell.
fn host_name() -> Vec<u8> {
    let mut name = [0u8; MAX_HOST_NAME_LEN];
    // SAFETY: gethostname writes at most as many bytes as it is told through the pointer, and keeps nothing.
    let failed = unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len()) } != 0;
    let name = if failed { &[] } else { &name[..] };
    name.split(|byte| *byte == 0)
        .next()
        .unwrap_or_default()
        .to_vec()
}
