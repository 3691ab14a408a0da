//! Servers with a name: the file `dsync.toml` of a user.
//!
//! What says where the server is, from the first that is there: `--url`, `-h` and `-p`, or `--sentinel`; `--profile`;
//! `DSYNC_URL`; `DSYNC_PROFILE`; `REDIS_URL`; the file's `default`. A profile is taken whole, so that no password goes to
//! the server of another; options besides replace single fields of it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::io::ErrorKind;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, de};

use crate::args;
use crate::duration;
use crate::failure::{Failure, Result, Status, usage};
use crate::password;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    default: Option<String>,
    #[serde(default)]
    profile: BTreeMap<String, Profile>,
}

/// The options for a server, under the names that they have on the command line.
#[derive(Deserialize, Default, Clone)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct Profile {
    #[serde(deserialize_with = "one_or_several")]
    url: Vec<String>,
    user: Option<String>,
    pass: Option<String>,
    password_file: Option<PathBuf>,
    db: Option<i64>,
    cluster: bool,
    #[serde(deserialize_with = "one_or_several")]
    sentinel: Vec<String>,
    master: Option<String>,
    sentinel_user: Option<String>,
    sentinel_pass: Option<String>,
    sentinel_password_file: Option<PathBuf>,
    tls: bool,
    cacert: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    insecure: bool,
    #[serde(deserialize_with = "time")]
    timeout: Option<std::time::Duration>,
}

fn one_or_several<'de, D: Deserializer<'de>>(
    value: D,
) -> std::result::Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrSeveral {
        One(String),
        Several(Vec<String>),
    }
    Ok(match OneOrSeveral::deserialize(value)? {
        OneOrSeveral::One(one) => vec![one],
        OneOrSeveral::Several(several) => several,
    })
}

fn time<'de, D: Deserializer<'de>>(
    value: D,
) -> std::result::Result<Option<std::time::Duration>, D::Error> {
    let text = String::deserialize(value)?;
    duration::parse_positive(&text)
        .map(Some)
        .map_err(de::Error::custom)
}

/// Returns the options with the address of the environment or the fields of a profile, if those do not say where the server
/// is.
pub fn complete(given: &args::Server) -> Result<args::Server> {
    let says_where = !given.url.is_empty() || !given.sentinel.is_empty();
    if says_where && given.profile.is_some() {
        return Err(usage(
            "--profile names the server: leave out --url and --sentinel",
        ));
    }
    let mut options = given.clone();
    if given.host.is_some() || given.port.is_some() {
        if says_where || given.profile.is_some() {
            return Err(usage(
                "-h and -p name the server: leave out --url, --sentinel and --profile",
            ));
        }
        let host = given.host.as_deref().unwrap_or("127.0.0.1");
        let is_ipv6 = host.parse::<Ipv6Addr>().is_ok();
        let (open, close) = if is_ipv6 { ("[", "]") } else { ("", "") };
        let port = given.port.unwrap_or(6379);
        options.url = vec![format!("redis://{open}{host}{close}:{port}")];
        return Ok(options);
    }
    if says_where {
        return Ok(options);
    }
    if let Some(name) = &given.profile {
        of_file(name, "--profile")?.add_to(&mut options);
        return Ok(options);
    }
    if let Some(urls) = urls_of("DSYNC_URL")? {
        options.url = urls;
    } else if let Some(name) = variable("DSYNC_PROFILE") {
        of_file(&name, "DSYNC_PROFILE")?.add_to(&mut options);
    } else if let Some(urls) = urls_of("REDIS_URL")? {
        options.url = urls;
    } else if let Some(profile) = default()? {
        profile.add_to(&mut options);
    }
    Ok(options)
}

/// Returns the URLs of a variable, which stand in it with blanks between them.
fn urls_of(name: &str) -> Result<Option<Vec<String>>> {
    let Some(text) = std::env::var_os(name).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    // One that is no UTF-8 must not be passed over: another server would be asked.
    let urls: Vec<String> = (text.to_string_lossy().split_whitespace())
        .map(str::to_owned)
        .collect();
    match urls.is_empty() {
        true => Err(usage(format!("{name} has only blanks"))),
        false => Ok(Some(urls)),
    }
}

impl Profile {
    /// Fills in what the options do not say.
    fn add_to(self, options: &mut args::Server) {
        fn fill<T>(option: &mut Option<T>, field: Option<T>) {
            if option.is_none() {
                *option = field;
            }
        }
        options.url = self.url;
        options.sentinel = self.sentinel;
        options.cluster |= self.cluster;
        options.tls |= self.tls;
        options.insecure |= self.insecure;
        // Another user has another password.
        let is_other = options.user.is_some() && options.user != self.user;
        if !is_other && options.pass.is_none() && options.password_file.is_none() {
            options.pass = self.pass;
            options.password_file = self.password_file;
        }
        let is_other =
            options.sentinel_user.is_some() && options.sentinel_user != self.sentinel_user;
        let has_password =
            options.sentinel_pass.is_some() || options.sentinel_password_file.is_some();
        if !is_other && !has_password {
            options.sentinel_pass = self.sentinel_pass;
            options.sentinel_password_file = self.sentinel_password_file;
        }
        fill(&mut options.user, self.user);
        fill(&mut options.db, self.db);
        fill(&mut options.master, self.master);
        fill(&mut options.sentinel_user, self.sentinel_user);
        fill(&mut options.cacert, self.cacert);
        fill(&mut options.cert, self.cert);
        fill(&mut options.private_key, self.key);
        fill(&mut options.timeout, self.timeout);
    }

    fn has_password(&self) -> bool {
        self.pass.is_some()
            || self.sentinel_pass.is_some()
            || self.url.iter().any(|url| password::is_in(url))
    }

    /// Files that are named without a folder's path are beside the profile.
    fn beside(mut self, folder: &Path) -> Profile {
        let files = [
            &mut self.password_file,
            &mut self.sentinel_password_file,
            &mut self.cacert,
            &mut self.cert,
            &mut self.key,
        ];
        for file in files.into_iter().flatten() {
            *file = folder.join(&*file);
        }
        self
    }
}

/// Returns the profile of this name, which `who` asks for.
fn of_file(name: &str, who: &str) -> Result<Profile> {
    let path = path().ok_or_else(|| {
        usage(format!(
            "{who} names the profile {name:?}, and there is neither XDG_CONFIG_HOME nor HOME to look for dsync.toml in"
        ))
    })?;
    let file = read(&path)?.ok_or_else(|| {
        usage(format!(
            "{who} names the profile {name:?}, and there is no file {}",
            path.display()
        ))
    })?;
    profile(file, name, who, &path)
}

/// Returns the profile that the file takes where nothing else says where the server is.
fn default() -> Result<Option<Profile>> {
    let Some(path) = path() else { return Ok(None) };
    let Some(file) = read(&path)? else {
        return Ok(None);
    };
    match file.default.clone() {
        Some(name) => profile(file, &name, "default", &path).map(Some),
        None => Ok(None),
    }
}

fn profile(mut file: File, name: &str, who: &str, path: &Path) -> Result<Profile> {
    let folder = path.parent().unwrap_or(Path::new("."));
    if let Some(profile) = file.profile.remove(name) {
        if profile.url.is_empty() == profile.sentinel.is_empty() {
            return Err(usage(format!(
                "{}: the profile {name:?} needs either url or sentinel, to say where the server is",
                path.display()
            )));
        }
        return Ok(profile.beside(folder));
    }
    let mut message = format!("{}: {who} names {name:?}, and it has ", path.display());
    match file.profile.is_empty() {
        true => message.push_str("no profile: begin one with [profile.NAME]"),
        false => message.push_str("only "),
    }
    for (nth, known) in file.profile.keys().enumerate() {
        let comma = if nth > 0 { ", " } else { "" };
        let _ = write!(message, "{comma}{known:?}");
    }
    Err(usage(message))
}

fn path() -> Option<PathBuf> {
    let folder = match variable("XDG_CONFIG_HOME") {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(&variable("HOME")?).join(".config"),
    };
    Some(folder.join("dsync.toml"))
}

/// Reads the file; `None` if there is none.
fn read(path: &Path) -> Result<Option<File>> {
    let failed = |why: String| Failure::new(Status::System, format!("{}: {why}", path.display()));
    let text = match fs::read_to_string(path) {
        // A system account has HOME=/dev/null, perhaps.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        text => text.map_err(|error| failed(error.to_string()))?,
    };
    let file: File = toml::from_str(&text)
        .map_err(|error| usage(format!("{}: {}", path.display(), mistake(&text, &error))))?;
    if file.profile.values().any(Profile::has_password) {
        let metadata = fs::metadata(path).map_err(|error| failed(error.to_string()))?;
        password::check_mode(&metadata).map_err(failed)?;
    }
    Ok(Some(file))
}

/// Says where the mistake is and what is wrong. The library would show the line, or its value: a password, perhaps.
fn mistake(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start));
    let line = before.unwrap_or_default().matches('\n').count() + 1;
    let what = match error.message().rsplit_once(", expected ") {
        Some((found, expected)) if found.starts_with("invalid ") => format!("expected {expected}"),
        _ => error.message().to_owned(),
    };
    format!("line {line}: {what}")
}

/// Returns the value of a variable of the environment that is not empty.
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile_of(text: &str) -> std::result::Result<Profile, toml::de::Error> {
        toml::from_str(text)
    }

    #[test]
    fn options_win_over_the_fields_of_a_profile() {
        let text = "url = 'redis://h'\nuser = 'a'\npass = 'of-a'\ndb = 2\ntimeout = '7s'";
        let mut options = args::Server {
            db: Some(5),
            ..args::Server::default()
        };
        profile_of(text).unwrap().add_to(&mut options);
        assert_eq!((options.db, options.user.as_deref()), (Some(5), Some("a")));
        assert_eq!(options.pass.as_deref(), Some("of-a"));
        assert_eq!(options.timeout, Some(std::time::Duration::from_secs(7)));
    }

    #[test]
    fn password_of_a_profile_is_not_that_of_another_user() {
        let mut options = args::Server {
            user: Some("b".into()),
            ..args::Server::default()
        };
        let text = "url = 'redis://h'\nuser = 'a'\npass = 'of-a'";
        profile_of(text).unwrap().add_to(&mut options);
        assert_eq!((options.user.as_deref(), options.pass), (Some("b"), None));
        let mut options = args::Server {
            sentinel_user: Some("b".into()),
            ..args::Server::default()
        };
        let text = "sentinel = 'h'\nmaster = 'm'\nsentinel-user = 'a'\nsentinel-pass = 'of-a'";
        profile_of(text).unwrap().add_to(&mut options);
        assert_eq!(options.sentinel_pass, None);
    }

    #[test]
    fn files_are_beside_the_profile() {
        let text = "cacert = 'ca.pem'\nkey = '/etc/key.pem'";
        let profile = profile_of(text)
            .unwrap()
            .beside(Path::new("/home/a/.config"));
        assert_eq!(profile.cacert.unwrap(), Path::new("/home/a/.config/ca.pem"));
        assert_eq!(profile.key.unwrap(), Path::new("/etc/key.pem"));
    }

    #[test]
    fn field_that_there_is_not_is_named() {
        let error = profile_of("url = 'redis://h'\nusr = 'a'").err().unwrap();
        let message = error.to_string();
        assert!(
            message.contains("usr") && message.contains("line 2"),
            "{message}"
        );
        assert!(profile_of("timeout = '0s'").is_err());
        assert_eq!(profile_of("url = ['a', 'b']").unwrap().url.len(), 2);
    }
}
