//! Finds the commit that a source tree is at: in `.git`, without running git, or where there is none in the file
//! `COMMIT`, into which `git archive` writes it.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the commit of the tree in this folder, and the files and folders that change when it is at another commit.
pub fn find(root: &Path) -> (Option<String>, Vec<PathBuf>) {
    let mut sources = Vec::new();
    let commit = match git_folder(root) {
        Some(folder) => commit_of_head(&folder, &mut sources),
        None => hash(&read(root.join("COMMIT"), &mut sources).unwrap_or_default()),
    };
    (commit, sources)
}

/// Returns the folder with the tree's HEAD. In a further work tree `.git` is a file that names it.
fn git_folder(root: &Path) -> Option<PathBuf> {
    let git = root.join(".git");
    if git.is_dir() {
        return Some(git);
    }
    let text = fs::read_to_string(git).ok()?;
    Some(root.join(text.trim().strip_prefix("gitdir: ")?))
}

fn commit_of_head(folder: &Path, sources: &mut Vec<PathBuf>) -> Option<String> {
    let head = read(folder.join("HEAD"), sources)?;
    let Some(branch) = head.trim().strip_prefix("ref: ") else {
        return hash(&head);
    };
    // The branches are in the folder that all work trees share.
    let shared = match fs::read_to_string(folder.join("commondir")) {
        Ok(path) => folder.join(path.trim()),
        Err(_) => folder.to_owned(),
    };
    let file = shared.join(branch);
    if let Some(text) = read(file.clone(), sources) {
        return hash(&text);
    }
    // The next commit writes the file, so watch the folder that it will be in.
    sources.extend(
        file.ancestors()
            .skip(1)
            .find(|folder| folder.is_dir())
            .map(Path::to_owned),
    );
    let packed = read(shared.join("packed-refs"), sources)?;
    let line = packed
        .lines()
        .find_map(|line| line.strip_suffix(branch)?.strip_suffix(' '));
    hash(line?)
}

/// Returns the text of a file, and notes the file as a source. `None` if there is no such file.
fn read(file: PathBuf, sources: &mut Vec<PathBuf>) -> Option<String> {
    let text = fs::read_to_string(&file).ok()?;
    sources.push(file);
    Some(text)
}

/// Returns the text if it is a hash. The file `COMMIT` has something else where `git archive` has not written it.
fn hash(text: &str) -> Option<String> {
    let text = text.trim();
    let is_hash =
        matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash.then(|| text.to_owned())
}
