//! COMMAND DOCS, COMMAND INFO and COMMAND GETKEYS describe every command as it was designed.
//!
//! Which requests the parser accepts is in `grammar_options` and `grammar_values`.

use crate::commands::designed_commands::*;
use crate::support::*;

#[test]
fn command_docs_and_info_describe_every_command_as_designed() {
    let mut requests = Requests::set_up();
    let listed = call!(
        requests.client,
        "COMMAND",
        "LIST",
        "FILTERBY",
        "MODULE",
        "dsync"
    );
    let mut listed: Vec<_> = listed
        .as_array()
        .iter()
        .map(|name| name.as_str().to_uppercase())
        .filter(|name| !INTERNAL.contains(&name.as_str()))
        .collect();
    listed.sort();
    let mut expected = COMMANDS.map(|row| row.name);
    expected.sort_unstable();
    assert_eq!(listed, expected);

    for row in &COMMANDS {
        let name = row.name;
        let docs = requests.docs(name);
        assert_eq!(*docs.field("since"), *row.since(), "{name}");
        assert_eq!(*docs.field("group"), "module", "{name}");
        assert_eq!(*docs.field("module"), "dsync", "{name}");
        let summary = docs.field("summary").as_str();
        assert!(
            summary.ends_with('.') && summary.matches('.').count() == 1,
            "{name}: {summary}"
        );
        let complexity = docs.field("complexity").as_str();
        assert!(
            complexity.starts_with("O(") && complexity.contains(" N the number of "),
            "{name}: {complexity}"
        );

        let args = arguments(&docs);
        let syntax: Vec<_> = args.iter().map(DocArgument::syntax).collect();
        assert_eq!(syntax.join(" "), row.syntax, "{name}");

        let info = call!(requests.client, "COMMAND", "INFO", name);
        let info = info.as_array()[0].as_array();
        let required = args.iter().filter(|arg| !arg.optional).count() as i64 + 1;
        let is_fixed = args.iter().all(|arg| !arg.optional && !arg.multiple);
        assert_eq!(
            info[1],
            if is_fixed { required } else { -required },
            "arity of {name}"
        );
        assert_eq!(joined(&info[7]), row.tips, "tips of {name}");
        let at = i64::from(!row.key.is_empty());
        assert!(
            info[3..6]
                .iter()
                .all(|first_last_step| *first_last_step == at),
            "{name}: {info:?}"
        );
        match info[8].as_array() {
            [] => assert_eq!(row.key, "", "{name}"),
            [spec] => assert_eq!(joined(spec.field("flags")), row.key, "{name}"),
            _ => panic!("{name} has one key at most: {info:?}"),
        }
    }
}

#[test]
fn command_getkeys_finds_the_key_in_every_request() {
    let mut requests = Requests::set_up();
    for row in &COMMANDS {
        let args = requests.args(row.name);
        let mut request = requests.bare(row.name, &args);
        for option in args.iter().filter(|arg| arg.optional) {
            request.extend(option.ways("").concat());
        }
        let ask =
            |how: &str| [vec!["COMMAND".to_owned(), how.to_owned()], request.clone()].concat();
        let keys = requests.client.call(&ask("GETKEYS"));
        let flagged = requests.client.call(&ask("GETKEYSANDFLAGS"));
        if row.key.is_empty() {
            assert!(
                keys.error().contains("no key arguments"),
                "{}: {keys:?}",
                row.name
            );
            continue;
        }
        assert_eq!(joined(&keys), request[1], "{}", row.name);
        match flagged.as_array() {
            [one] => {
                assert_eq!(one.as_array()[0], request[1].as_str(), "{}", row.name);
                assert_eq!(joined(&one.as_array()[1]), row.key, "{}", row.name);
            }
            _ => panic!("{} has one key: {flagged:?}", row.name),
        }
    }
}
