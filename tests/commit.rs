//! The commit that INFO shows is found in every kind of source tree: with its branch in a file or packed, with HEAD on
//! no branch, in a further work tree, and in an archive.

#![allow(clippy::expect_used, reason = "a test that fails panics and says why")]

#[path = "../build/commit.rs"]
mod commit;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

const ONE: &str = "1111111111111111111111111111111111111111";
const TWO: &str = "2222222222222222222222222222222222222222";

/// The path of a file, and its text.
type File<'a> = (&'a str, &'a str);

/// A folder of its own, which is removed at the end.
struct Tree(PathBuf);

impl Tree {
    fn new(files: &[File]) -> Tree {
        static TREES: AtomicU32 = AtomicU32::new(0);
        let number = TREES.fetch_add(1, Relaxed);
        let name = format!("commit-{}-{number}", std::process::id());
        let tree = Tree(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name));
        fs::create_dir_all(&tree.0).expect("a new folder");
        for (path, text) in files {
            tree.write(path, text);
        }
        tree
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().expect("in the tree")).expect("a folder");
        fs::write(path, text).expect("a file");
    }

    /// The commit of the tree in this folder, and the paths that are watched, from the whole tree's folder.
    fn find(&self, folder: &str) -> (Option<String>, Vec<PathBuf>) {
        let (commit, sources) = commit::find(&self.0.join(folder));
        assert!(sources.iter().all(|source| source.exists()), "{sources:?}");
        (commit, sources)
    }

    fn commit(&self, folder: &str) -> Option<String> {
        self.find(folder).0
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn commit_is_found_in_every_kind_of_tree() {
    let on_main = (".git/HEAD", "ref: refs/heads/main\n");
    let one = &format!("{ONE}\n");
    let packed = format!(
        "# pack-refs with: peeled\n{TWO} refs/heads/old-main\n{ONE} refs/heads/main\n^{TWO}\n"
    );
    let packed = (".git/packed-refs", &packed[..]);
    let cases: [(&str, &[File], Option<&str>); 9] = [
        (
            "a branch",
            &[on_main, (".git/refs/heads/main", one)],
            Some(ONE),
        ),
        ("a packed branch", &[on_main, packed], Some(ONE)),
        (
            "a packed branch that has moved on",
            &[on_main, packed, (".git/refs/heads/main", TWO)],
            Some(TWO),
        ),
        ("no branch", &[(".git/HEAD", one)], Some(ONE)),
        ("a branch without a commit", &[on_main], None),
        ("an archive", &[("COMMIT", one)], Some(ONE)),
        ("a copy without .git", &[("COMMIT", "$Format:%H$\n")], None),
        (
            "a clone, whose COMMIT is not written",
            &[(".git/HEAD", TWO), ("COMMIT", one)],
            Some(TWO),
        ),
        ("nothing", &[], None),
    ];
    for (case, files, expected) in cases {
        assert_eq!(Tree::new(files).commit("").as_deref(), expected, "{case}");
    }
}

#[test]
fn commit_of_further_work_tree_is_its_own() {
    let tree = Tree::new(&[
        ("main/.git/HEAD", "ref: refs/heads/main\n"),
        ("main/.git/refs/heads/main", ONE),
        ("main/.git/refs/heads/side", TWO),
        ("main/.git/worktrees/side/HEAD", "ref: refs/heads/side\n"),
        ("main/.git/worktrees/side/commondir", "../..\n"),
        ("side/.git", "gitdir: ../main/.git/worktrees/side\n"),
    ]);
    assert_eq!(tree.commit("main").as_deref(), Some(ONE));
    assert_eq!(tree.commit("side").as_deref(), Some(TWO));
}

#[test]
fn new_commit_changes_a_watched_path() {
    let tree = Tree::new(&[
        (".git/HEAD", "ref: refs/heads/a/b\n"),
        (".git/packed-refs", &format!("{ONE} refs/heads/a/b\n")),
        (".git/refs/heads/main", ONE),
    ]);
    let (commit, sources) = tree.find("");
    assert_eq!(commit.as_deref(), Some(ONE));
    // Git will write .git/refs/heads/a/b, in a folder that is not there yet.
    assert!(
        sources.contains(&tree.0.join(".git/refs/heads")),
        "{sources:?}"
    );
    tree.write(".git/refs/heads/a/b", TWO);
    let (commit, sources) = tree.find("");
    assert_eq!(commit.as_deref(), Some(TWO));
    assert!(
        sources.contains(&tree.0.join(".git/refs/heads/a/b")),
        "{sources:?}"
    );
}
