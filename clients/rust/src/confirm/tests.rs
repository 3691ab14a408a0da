use super::*;

fn confirm(replicas: Replicas, disk: bool) -> Confirm {
    let within = Duration::from_millis(250);
    Confirm {
        replicas,
        within,
        disk,
    }
}

fn told(confirm: Confirm, reply: &str) -> Result<(), (u32, u32)> {
    let reply = redis::parse_redis_value(reply.as_bytes()).unwrap();
    match Told::read(&[confirm], vec![reply]).confirms(confirm) {
        Err(Failure::NotConfirmed { have, wanted }) => Err((have, wanted)),
        Err(_) => Err((99, 99)),
        Ok(()) => Ok(()),
    }
}

#[test]
fn disk_of_the_primary_counts_too() {
    let alone = confirm(Replicas::Count(0), true);
    assert_eq!(told(alone, "*2\r\n:1\r\n:0\r\n"), Ok(()));
    assert_eq!(told(alone, "*2\r\n:0\r\n:0\r\n"), Err((0, 1)));
    let one = confirm(Replicas::Count(1), true);
    assert_eq!(told(one, "*2\r\n:1\r\n:0\r\n"), Err((0, 1)));
    assert_eq!(told(one, "*2\r\n:0\r\n:1\r\n"), Err((0, 1)));
    assert_eq!(told(one, "*2\r\n:1\r\n:1\r\n"), Ok(()));
}

#[test]
fn requests_together_have_one_wait_for_the_highest_number() {
    let mut pipeline = Pipeline::new();
    let mut wait = confirm(Replicas::Count(1), false);
    wait.within = Duration::from_millis(400);
    let confirms = [
        wait,
        confirm(Replicas::All, false),
        confirm(Replicas::Count(0), true),
    ];
    add_waits(&mut pipeline, &confirms, 3);
    let packed = pipeline.get_packed_pipeline();
    let packed = String::from_utf8(packed).unwrap();
    assert_eq!(
        packed,
        "*3\r\n$4\r\nWAIT\r\n$1\r\n3\r\n$3\r\n400\r\n\
         *4\r\n$7\r\nWAITAOF\r\n$1\r\n1\r\n$1\r\n0\r\n$3\r\n400\r\n"
    );
}

/// DONE is then not turned into FAIL: it was no DONE that the server refused.
#[test]
fn refusal_of_a_greeting_is_none_of_the_command() {
    let refusal = || redis::make_extension_error("WRONGPASS".to_owned(), None);
    let is_refusal = |failure: Failure| {
        let done = Command::of_server("DONCE.DONE");
        failure.of(&done, String::new()).is_refusal()
    };
    assert!(is_refusal(Failure::Redis(refusal())));
    assert!(!is_refusal(Failure::NotSent(refusal())));
}
