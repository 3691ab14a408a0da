//! A rolling upgrade under load, as docs/upgrading.md describes it, with every reply checked and the servers compared.
//!
//! All three servers begin with an older module. The replicas are upgraded first, then one of them becomes the primary,
//! then the old primary is upgraded. So in turn a newer replica follows an older primary, and an older one a newer. The
//! requests have only options that both modules know. And a downgrade: the older module reads what this one has written.
//!
//! `DSYNC_OLD_MODULE=file`, `DSYNC_OLD_VERSION=0.2.0`, `DSYNC_UPGRADE_SECONDS=n` (2, for each of the five stages),
//! `DSYNC_SEED=n`. Without an old module the servers are upgraded from the module to itself. `make test-upgrades` builds the
//! earlier versions.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::plan::{Mix, Plan};
use super::requests::Version;
use super::step::Step;
use super::{COMPARE_EVERY, FuzzRun, Log, MIX, SEED, from_environment};
use crate::support::data_files::rewrite_aof;
use crate::support::{Server, module_path, steadily};

/// What is done to the servers at the end of each stage but the last. Server 0 is the primary at first, server 2 a replica
/// of server 1.
const UPGRADES: [Step; 4] = [
    Step::Upgrade { server: 2 },
    Step::Upgrade { server: 1 },
    Step::Failover,
    Step::Upgrade { server: 0 },
];

fn run(seed: u64, stage: Duration, old: &Path, oldest: Version) {
    let name = format!("target/fuzz/upgrade-{seed}-{}.log", std::process::id());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    let heading = format!("seed {seed}, from {}", old.display());
    let log = Log::create(path, &heading, "make test-upgrades", false);
    let mut run = FuzzRun::start(false, old, Some(log));
    let mix = Mix {
        oldest,
        quits: false,
        // Before this version a replica that takes writes carried them out.
        strays: false,
        ..MIX
    };
    let mut plan = Plan::new(seed, mix);
    let mut number = 0;
    for upgrade in UPGRADES.map(Some).into_iter().chain([None]) {
        let (start, mut compared) = (Instant::now(), Instant::now());
        while start.elapsed() < stage {
            let (pause, step) = match compared.elapsed() >= COMPARE_EVERY {
                true => (Duration::ZERO, Step::Compare),
                false => plan.next(&run.driver),
            };
            if step == Step::Compare {
                compared = Instant::now();
            }
            number += 1;
            run.perform(number, pause, step);
        }
        for step in [Some(Step::Compare), upgrade].into_iter().flatten() {
            number += 1;
            run.perform(number, Duration::ZERO, step);
        }
    }
    run.finish();
}

fn old_module() -> PathBuf {
    std::env::var_os("DSYNC_OLD_MODULE").map_or_else(module_path, PathBuf::from)
}

/// The way back: the older module reads the files of this one, and its fences are no lower.
#[test]
fn older_module_reads_files_and_grants_higher_fences() {
    for appendonly in ["no", "yes"] {
        let builder = Server::builder().config("appendonly", appendonly);
        let mut server = builder.config("appendfsync", "always").start();
        let mut client = server.connect();
        let held = client.ask("DLOCK.ACQUIRE held EX 600 TOKEN t").grant().1;
        match appendonly {
            "yes" => rewrite_aof(&server),
            _ => assert_eq!(client.ask("SAVE"), "OK"),
        }
        server.kill9();
        server.set_module(&old_module());
        server.start_again();
        let mut client = server.connect();
        assert!(client.ask("DLOCK.CHECK held t").as_int() > 0);
        let fence = client.ask("DLOCK.ACQUIRE k").grant().1;
        assert!(fence > held, "{fence} follows {held}, AOF: {appendonly}");
    }
}

#[test]
fn rolling_upgrade_under_load_breaks_no_guarantee() {
    let old = old_module();
    let seed = from_environment("DSYNC_SEED").unwrap_or(SEED);
    let seconds = from_environment("DSYNC_UPGRADE_SECONDS").unwrap_or(2);
    let oldest = match std::env::var("DSYNC_OLD_VERSION").as_deref() {
        Ok("0.2.0") => Version::V0_2_0,
        Ok("0.3.0") => Version::V0_3_0,
        Ok("0.3.1") => Version::V0_3_1,
        _ => Version::V0_4_0,
    };
    steadily(|| run(seed, Duration::from_secs(seconds), &old, oldest));
}
