//! The replies of all commands, which are the same in RESP2 and RESP3. The fields of INFO are in `observing::info`, the
//! errors in `every_command` and in the stories of what they are about.

use crate::support::steps::*;
use crate::support::*;

/// A request and its reply, in which `#` stands for a number of three digits or more. `B>` is a connection that waits
/// for what `B` shows. `F` is the prefix of the family, `A` the request for a hold of `k`, and `G` the grant of the
/// token.
const OF_EACH_FAMILY: &str = r#"
F.INFO k                       nil
A TOKEN t                      G"t"
A                              nil
A BLOCK 1                      nil
A TOKEN u QUEUE 9000           ["WAITING", 1, "dsync:{k}:#"]
F.RELEASE k u                  1
F.CHECK k t                    #
F.RENEW k t                    1
B> A TOKEN v BLOCK 0
F.RELEASE k t                  1
B                              G"v"
F.REVOKE k 1                   0
F.RELEASE k t                  0
F.RENEW k t                    0
F.CHECK k t                    0
F.REVOKE k {fence}             1
F.PAUSE k 60000                0
F.PAUSE k 0                    #
"#;

const OF_ONE_FAMILY: &str = r#"
DSEM.ACQUIRE s LIMIT 1 INDEX TOKEN t   ["t", #, 0]
DSEM.RELEASE s t               1
DSEM.LIMIT s 2                 -1
DSEM.LIMIT s NONE              2
DWG.WAIT g                     [0, 0]
DWG.EXPECT g 2                 2
DWG.WAIT g                     nil
DWG.WAIT g BLOCK 1             nil
DWG.ADD g TOKEN t              ["t", #]
DWG.ADD g TOKEN u              ["u", #]
B> DWG.WAIT g BLOCK 0
DWG.DONE g t u x               2
B                              [2, 0]
DWG.WAIT g                     [2, 0]
DONCE.GET o                    nil
DONCE.BEGIN o TOKEN one        ["RUN", "one", #, 1]
DONCE.FAIL o one REASON why    1
DONCE.FAIL o one               0
DONCE.BEGIN o MAX 1            ["FAILED", "why", 1]
DONCE.BEGIN o TOKEN two        ["RUN", "two", #, 2]
DONCE.DONE o two               1
DONCE.DONE o other             0
DONCE.BEGIN o                  ["DONE", nil, 2]
DEL o                          1
DONCE.BEGIN o TOKEN one        ["RUN", "one", #, 1]
DONCE.DONE o one RESULT 42     1
DONCE.BEGIN o                  ["DONE", "42", 1]
DONCE.GET o                    ["DONE", "42", 1]
DSYNC.CONTENDED                []
DSYNC.HOLDS 0                  ["0", []]
DSYNC.LOG RESET                +OK
DSYNC.LOG                      []
"#;

/// The reply as the stories above write it.
fn told(reply: &Reply) -> String {
    let text = format!("{reply:?}");
    let mut told = String::new();
    for run in text
        .as_bytes()
        .chunk_by(|a, b| a.is_ascii_digit() == b.is_ascii_digit())
    {
        let is_long = run.len() > 2 && run[0].is_ascii_digit();
        told += if is_long {
            "#"
        } else {
            std::str::from_utf8(run).expect("text")
        };
    }
    told
}

#[track_caller]
fn tell_story(server: &Server, connect: fn(&Server) -> Client, story: &str) {
    let (mut client, mut waiter) = (connect(server), connect(server));
    let mut fence = 0;
    for line in story.lines().filter(|line| !line.is_empty()) {
        let (request, expected) = line.split_once("  ").unwrap_or((line, ""));
        if let Some(request) = request.strip_prefix("B> ") {
            waiter.wait_on(server, request);
            continue;
        }
        let answer = match request {
            "B" => waiter.reply(),
            request => client.ask(request.replace("{fence}", &fence.to_string())),
        };
        assert_eq!(told(&answer), expected.trim(), "{line}");
        fence = fence_in(&answer).unwrap_or(fence);
    }
}

#[test]
fn every_command_has_the_same_replies_in_resp2_and_resp3() {
    let server = Server::start();
    for connect in [Server::connect, Server::connect_resp3] {
        for family in Family::ALL {
            let grant = |token: &str| match family {
                Family::Once => format!("[\"RUN\", {token}, #, 1]"),
                _ => format!("[{token}, #]"),
            };
            let story = OF_EACH_FAMILY.replace("F.", &format!("{}.", family.prefix()));
            let story = story.replace("A ", &format!("{} ", family.request("k")));
            let story = story
                .replace("G\"t\"", &grant("\"t\""))
                .replace("G\"v\"", &grant("\"v\""));
            tell_story(&server, connect, &story);
            assert_eq!(server.connect().ask("FLUSHALL"), "OK");
        }
        tell_story(&server, connect, OF_ONE_FAMILY);
        assert_eq!(server.connect().ask("FLUSHALL"), "OK");
    }
}
