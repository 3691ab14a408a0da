use super::*;

fn confirm(replicas: Replicas, disk: bool) -> Confirm {
    let within = Duration::from_millis(250);
    Confirm {
        replicas,
        within,
        disk,
    }
}

fn told(confirm: Confirm, attached: usize, reply: &str) -> Result<(), (u32, u32)> {
    let mut replies = vec![redis::parse_redis_value(reply.as_bytes()).unwrap()];
    if confirm.replicas == Replicas::All {
        let replicas = Value::Array(vec![Value::Nil; attached]);
        replies.insert(0, Value::Array(vec![Value::Nil, Value::Int(7), replicas]));
    }
    match Told::read(&[confirm], replies).confirms(confirm) {
        Err(Failure::NotConfirmed { have, wanted }) => Err((have, wanted)),
        Err(_) => Err((99, 99)),
        Ok(()) => Ok(()),
    }
}

#[test]
fn replicas_count_as_they_are_told() {
    let two = confirm(Replicas::Count(2), false);
    assert_eq!(told(two, 0, ":2\r\n"), Ok(()));
    assert_eq!(told(two, 0, ":1\r\n"), Err((1, 2)));
    let all = confirm(Replicas::All, false);
    assert_eq!(told(all, 3, ":2\r\n"), Err((2, 3)));
    assert_eq!(told(all, 3, ":3\r\n"), Ok(()));
    // At least one.
    assert_eq!(told(all, 0, ":0\r\n"), Err((0, 1)));
    let replica = "-ERR WAIT cannot be used with replica instances. \r\n";
    assert_eq!(told(two, 0, replica), Err((0, 2)));
    assert_eq!(told(two, 0, "-NOPERM no\r\n"), Err((99, 99)));
}

#[test]
fn disk_of_the_primary_counts_too() {
    let alone = confirm(Replicas::Count(0), true);
    assert_eq!(told(alone, 0, "*2\r\n:1\r\n:0\r\n"), Ok(()));
    assert_eq!(told(alone, 0, "*2\r\n:0\r\n:0\r\n"), Err((0, 1)));
    let one = confirm(Replicas::Count(1), true);
    assert_eq!(told(one, 0, "*2\r\n:1\r\n:0\r\n"), Err((0, 1)));
    assert_eq!(told(one, 0, "*2\r\n:0\r\n:1\r\n"), Err((0, 1)));
    assert_eq!(told(one, 0, "*2\r\n:1\r\n:1\r\n"), Ok(()));
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

#[test]
fn grants_renewals_and_done_are_to_be_confirmed() {
    for (reply, is_needed) in [
        ("*2\r\n$1\r\nt\r\n:7\r\n", true),
        (":1\r\n", true),
        (":0\r\n", false),
        ("$-1\r\n", false),
        ("*3\r\n$7\r\nWAITING\r\n:3\r\n$1\r\nc\r\n", false),
    ] {
        let value = redis::parse_redis_value(reply.as_bytes()).unwrap();
        assert_eq!(needs(&value), is_needed, "{reply}");
    }
}
