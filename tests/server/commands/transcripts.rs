//! Sessions as `redis-cli` shows them, and whether a recorded one shows the same as a new one: everything must be equal
//! but the numbers that differ from run to run, which are fences, ids and milliseconds.

use crate::commands::reply_forms::ReplyForm;
use crate::support::*;

/// Stands for a number that differs from run to run.
const VARIES: &str = "<#>";

/// The integer that is shown as [`VARIES`].
const VARYING: i64 = i64::MIN;

/// A fence, a number of a place or a unix time in microseconds has as many digits, other numbers in texts have fewer.
const DIGITS_OF_A_FENCE: usize = 15;

/// A session, as lines.
#[derive(Default)]
pub struct Transcript {
    /// What the user would see.
    pub shown: String,
    /// The same with [`VARIES`] in place of numbers that differ from run to run.
    pub masked: String,
    last_masked: String,
    last_shown: String,
}

impl Transcript {
    /// Adds a request and returns it, with the fence in place of `{fence}`.
    pub fn request(&mut self, line: &str, fence: Option<u64>) -> String {
        let fence = fence.map(|fence| fence.to_string()).unwrap_or_default();
        let whole = line.replace("{fence}", &fence);
        self.shown += &format!("{whole}\n");
        self.masked += &format!("{}\n", line.replace("{fence}", VARIES));
        whole
    }

    /// Adds a reply: without a form, everything in it must be the same in each run.
    pub fn reply(&mut self, reply: &Reply, form: Option<&ReplyForm>, is_of_b: bool) {
        let masked = form.map_or_else(|| reply.clone(), |form| mask(reply, form));
        let (indent, first) = if is_of_b { (3, "B: ") } else { (0, "") };
        self.last_shown = format!("{first}{}\n", shown(reply, indent));
        let masked = shown(&masked, indent).replace(&VARYING.to_string(), VARIES);
        self.last_masked = format!("{first}{}\n", without_fences(&masked));
        self.shown += &self.last_shown;
        self.masked += &self.last_masked;
    }

    /// Adds the last reply in RESP3, if it is another one there.
    pub fn add_resp3(&mut self, other: &Transcript) {
        if other.last_masked != self.last_masked {
            self.shown += &format!("RESP3\n{}", other.last_shown);
            self.masked += &format!("RESP3\n{}", other.last_masked);
        }
    }
}

/// The reply with [`VARYING`] in place of the numbers that the form says differ.
fn mask(reply: &Reply, form: &ReplyForm) -> Reply {
    let all = |found: &[Reply], forms: &[ReplyForm]| {
        let pairs = found.iter().zip(forms);
        Reply::Array(pairs.map(|(found, form)| mask(found, form)).collect())
    };
    match (form, reply) {
        (ReplyForm::Ms | ReplyForm::Id, Reply::Int(_)) => Reply::Int(VARYING),
        (ReplyForm::Array(forms), Reply::Array(found)) => all(found, forms),
        (ReplyForm::List(form), Reply::Array(found)) => {
            Reply::Array(found.iter().map(|item| mask(item, form)).collect())
        }
        (ReplyForm::Map(fields), Reply::Map(found)) => {
            let pairs = found.iter().zip(fields);
            Reply::Map(
                pairs
                    .map(|((name, value), (_, form))| (name.clone(), mask(value, form)))
                    .collect(),
            )
        }
        (ReplyForm::Either(forms), _) => {
            let form = forms.iter().find(|form| form.fits(reply));
            form.map_or_else(|| reply.clone(), |form| mask(reply, form))
        }
        _ => reply.clone(),
    }
}

/// The text with [`VARIES`] in place of numbers as long as a fence: those in the names of channels.
fn without_fences(text: &str) -> String {
    let mut masked = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(|letter: char| letter.is_ascii_digit()) {
        let digits = rest[at..].bytes().take_while(u8::is_ascii_digit).count();
        masked += &rest[..at];
        masked += if digits < DIGITS_OF_A_FENCE {
            &rest[at..at + digits]
        } else {
            VARIES
        };
        rest = &rest[at + digits..];
    }
    masked + rest
}

/// Whether the session shows what the masked transcript does, with any numbers where that has [`VARIES`].
pub fn is_a_recording_of(session: &str, masked: &str) -> bool {
    let (recorded, masked) = (session.trim_end().lines(), masked.trim_end().lines());
    recorded.clone().count() == masked.clone().count()
        && recorded
            .zip(masked)
            .all(|(line, masked)| fits(line, masked))
}

fn fits(line: &str, masked: &str) -> bool {
    let mut pieces = masked.split(VARIES);
    let mut rest = line.strip_prefix(pieces.next().unwrap_or_default());
    for piece in pieces {
        rest = rest.and_then(|rest| {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let after = (digits > 0).then_some(&rest[digits..])?;
            after.strip_prefix(piece)
        });
    }
    rest == Some("")
}

#[test]
fn recorded_session_differs_in_varying_numbers_only() {
    for (line, masked, is_same) in [
        ("(integer) 17", "(integer) <#>", true),
        ("(integer) x", "(integer) <#>", false),
        ("(integer) 17 more", "(integer) <#>", false),
        ("(integer) 2", "(integer) 3", false),
        ("\"dsync:{k}:5\"", "\"dsync:{k}:<#>\"", true),
        ("(integer) 3\n(nil)", "(integer) 3", false),
    ] {
        assert_eq!(is_a_recording_of(line, masked), is_same, "{line}");
    }
}
