//! The commands as the server describes them by COMMAND LIST, COMMAND INFO and COMMAND DOCS, and requests made from
//! that. So a test of all commands names none of them, and has a new one without a change.

use crate::support::*;

/// The commands that the module and its servers use among themselves. Servers that can hide a command hide these.
pub const INTERNAL: [&str; 3] = ["DSYN", "DSYNC.APPLY", "DSYNC.PROBE"];

/// The token in all requests that have one. No error may contain it.
pub const SECRET: &str = "s3cr3t-0f-th3-t3st";

pub struct Documented {
    pub name: String,
    /// Its entry in COMMAND DOCS.
    pub docs: Reply,
    pub args: Vec<DocArgument>,
}

/// An argument as COMMAND DOCS describes it.
pub struct DocArgument {
    pub name: String,
    pub kind: String,
    pub token: Option<String>,
    pub optional: bool,
    pub multiple: bool,
    /// The least and the greatest number or length.
    pub bounds: Option<(u64, u64)>,
    pub parts: Vec<DocArgument>,
}

/// All commands for clients, by name.
pub fn documented(client: &mut Client) -> Vec<Documented> {
    let listed = client.ask("COMMAND LIST FILTERBY MODULE dsync");
    let names = listed
        .as_array()
        .iter()
        .map(|name| name.as_str().to_uppercase());
    let mut names: Vec<_> = names.filter(|name| !INTERNAL.contains(&&**name)).collect();
    names.sort();
    let described = |name: String| {
        let docs = client
            .ask(format!("COMMAND DOCS {name}"))
            .field(&name)
            .clone();
        let args = arguments(client, &docs);
        Documented { name, docs, args }
    };
    names.into_iter().map(described).collect()
}

impl Documented {
    pub fn family(&self) -> &str {
        self.name.split('.').next().expect("a family")
    }

    pub fn has_key(&self) -> bool {
        self.args.first().is_some_and(|arg| arg.kind == "key")
    }

    /// Whether it asks for a hold.
    pub fn asks(&self) -> bool {
        self.takes("QUEUE")
    }

    /// The arguments that a request may leave out; of a choice, each alternative.
    pub fn options(&self) -> Vec<&DocArgument> {
        let optional = self.args.iter().filter(|arg| arg.optional);
        optional.flat_map(DocArgument::alternatives).collect()
    }

    /// Whether it has neither options nor a list.
    pub fn is_fixed(&self) -> bool {
        self.args.iter().all(|arg| !arg.optional && !arg.multiple)
    }

    pub fn takes(&self, word: &str) -> bool {
        self.options().iter().any(|option| option.is_word(word))
    }

    /// The arguments that have bounds, with them.
    pub fn bounded(&self) -> Vec<(&DocArgument, (u64, u64))> {
        let args = self.args.iter().flat_map(DocArgument::alternatives);
        args.filter_map(|arg| Some((arg, arg.bounds?))).collect()
    }

    /// The request without any option.
    pub fn bare(&self, key: &str) -> Vec<String> {
        let required = self.args.iter().filter(|arg| !arg.optional);
        let words = required.map(|arg| match arg.alternatives()[0] {
            first if first.kind == "key" => key.to_owned(),
            first => first.value(),
        });
        [self.name.clone()].into_iter().chain(words).collect()
    }

    /// The request with these options, and with a limit, without which a semaphore grants nothing.
    pub fn request(&self, key: &str, more: &[String]) -> Vec<String> {
        let mut words = [&self.bare(key), more].concat();
        if self.name == "DSEM.ACQUIRE" && !words.contains(&"LIMIT".to_owned()) {
            words.extend(["LIMIT", "1000000"].map(str::to_owned));
        }
        words
    }

    /// The request with this value of one of the arguments.
    pub fn with(&self, key: &str, arg: &DocArgument, value: &str) -> Vec<String> {
        let is_it =
            |own: &DocArgument| own.alternatives().iter().any(|own| std::ptr::eq(*own, arg));
        let at = self.args.iter().position(is_it).expect("its argument");
        let is_optional = self.args[at].optional;
        let more = if is_optional {
            arg.words(value)
        } else {
            vec![]
        };
        let mut request = self.request(key, &more);
        if !is_optional {
            request[at + 1] = value.to_owned();
        }
        request
    }
}

impl DocArgument {
    fn read(client: &mut Client, reply: &Reply) -> DocArgument {
        let word = |field: &str| reply.find_field(field).map(|text| text.as_str().to_owned());
        let flags = reply.find_field("flags").map_or(&[][..], Reply::as_array);
        let kind = word("type").expect("every argument has a type");
        let summary = word("summary").expect("every argument says what it means");
        let is_sentence = summary.ends_with('.') && summary.matches(". ").count() == 0;
        assert!(is_sentence, "{reply:?}");
        let bounds = ["integer", "string"]
            .contains(&&*kind)
            .then(|| bounds(client, &summary));
        assert_eq!(bounds.is_some(), summary.ends_with(")."), "{reply:?}");
        if kind == "key" {
            assert_eq!(*reply.field("key_spec_index"), 0, "{reply:?}");
        }
        let parts = arguments(client, reply);
        assert_eq!(kind == "oneof", !parts.is_empty(), "{reply:?}");
        DocArgument {
            name: word("name").expect("every argument has a name"),
            kind,
            token: word("token"),
            optional: flags.iter().any(|flag| *flag == "optional"),
            multiple: flags.iter().any(|flag| *flag == "multiple"),
            bounds,
            parts,
        }
    }

    /// The alternatives of a choice; otherwise the argument itself.
    pub fn alternatives(&self) -> Vec<&DocArgument> {
        match self.parts.as_slice() {
            [] => vec![self],
            parts => parts.iter().collect(),
        }
    }

    /// The argument in a request with this value.
    pub fn words(&self, value: &str) -> Vec<String> {
        let value = (self.kind != "pure-token").then_some(value);
        let words = self.token.as_deref().into_iter().chain(value);
        words.map(str::to_owned).collect()
    }

    pub fn is_word(&self, word: &str) -> bool {
        self.token.as_deref() == Some(word)
    }

    /// A value that is right.
    pub fn value(&self) -> String {
        match (self.name.as_str(), self.bounds) {
            ("token", _) => SECRET.to_owned(),
            ("cursor", _) => "0".to_owned(),
            (_, Some((least, _))) if self.kind == "integer" => least.max(1).to_string(),
            _ => "text".to_owned(),
        }
    }
}

/// The arguments of an entry of COMMAND DOCS, or the alternatives of an argument.
fn arguments(client: &mut Client, reply: &Reply) -> Vec<DocArgument> {
    let list = reply
        .find_field("arguments")
        .map_or(&[][..], Reply::as_array);
    list.iter()
        .map(|arg| DocArgument::read(client, arg))
        .collect()
}

/// Reads `(1 to 128 bytes).` or `(1 second to dsync.max-lease-ms).` at the end of a summary.
fn bounds(client: &mut Client, summary: &str) -> (u64, u64) {
    let (_, text) = summary.rsplit_once('(').expect("bounds");
    let (least, most) = text
        .trim_end_matches(").")
        .split_once(" to ")
        .expect("two bounds");
    let number = |text: &str| text.split([' ', ',']).next().and_then(|n| n.parse().ok());
    let setting = || {
        let value = client.ask(format!("CONFIG GET {most}"));
        let value = number(value.field(most).as_str()).expect("a number");
        if least.ends_with(" second") {
            value / 1_000
        } else {
            value
        }
    };
    (
        number(least).expect("a number"),
        number(most).unwrap_or_else(setting),
    )
}

/// The texts of an array or a set, with blanks between them.
pub fn joined(reply: &Reply) -> String {
    let words: Vec<_> = reply
        .as_array()
        .iter()
        .map(|word| word.as_str().to_owned())
        .collect();
    words.join(" ")
}
