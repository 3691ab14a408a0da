"""The programs in which mutants are played: the tests of a crate, built from a copy of the tree.

All mutants that can be woven (weave.py) are in one program, which is built once. A run with DSYNC_REACHED tells which
tests reach each mutant, and how long a test takes; runs with DSYNC_MUTANT play one, the quickest tests first.

The module's mutants meet its stories behind the unit tests: these tests are in a program of their own, whose servers
load the module with the mutants. Each story is run alone with DSYNC_REACHED_IN, a folder in which servers leave the
number of each mutant that they come to.
"""

from __future__ import annotations

import collections
import itertools
import json
import os
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, NamedTuple, Set, Tuple

from tree import ROOT, copy_tree
from weave import Lines, Mutant, Weaver, alone

#: What is added to the root of a crate. A test has a thread of its own, with its name.
ASKS = """
#[allow(warnings, clippy::all)]
pub mod woven {
    use std::{cell::RefCell, collections::BTreeSet, env, fs, sync::LazyLock, thread, time::Instant};

    static CHOSEN: LazyLock<(u32, Option<String>, Option<String>)> = LazyLock::new(|| {
        let chosen = env::var("DSYNC_MUTANT").ok().and_then(|number| number.parse().ok());
        (chosen.unwrap_or(0), env::var("DSYNC_REACHED").ok(), env::var("DSYNC_REACHED_IN").ok())
    });

    struct Seen(Instant, BTreeSet<u32>, Vec<bool>);

    impl Drop for Seen {
        fn drop(&mut self) {
            let Some(folder) = &CHOSEN.1 else { return };
            let name = thread::current().name().unwrap_or("?").to_owned();
            let file = format!("{folder}/{:?}", thread::current().id());
            let line = format!("{name} {} {:?}", self.0.elapsed().as_secs_f64(), self.1);
            let _ = fs::write(file, line);
        }
    }

    thread_local! {
        static SEEN: RefCell<Seen> = RefCell::new(Seen(Instant::now(), BTreeSet::new(), vec![false; 65_536]));
    }

    pub fn on(number: u32) -> bool {
        let chosen = &*CHOSEN;
        if chosen.1.is_some() || chosen.2.is_some() {
            let _ = SEEN.try_with(|seen| {
                let mut seen = seen.borrow_mut();
                if !std::mem::replace(&mut seen.2[number as usize], true) {
                    seen.1.insert(number);
                    // A server may be killed at any moment.
                    let _ = chosen.2.as_ref().map(|folder| fs::write(format!("{folder}/{number}"), ""));
                }
            });
        }
        chosen.0 == number
    }
}
"""
#: Seconds until a mutant counts as endless, and how many times as long as the file's own a test may take.
PATIENCE, TIMES = 5.0, 10
#: Bytes that a mutant may take: an endless one can fill them within seconds.
MEMORY = 2 << 30
#: Seconds of tests, or how many of them, that are run before the next are asked for: one after the other, but the
#: stories, which mostly wait, side by side.
GROUP, MANY = 1.0, 40
GROUP_OF_STORIES, STORIES_AT_ONCE = 8.0, 6


class Crate(NamedTuple):
    root: str
    #: What builds its tests.
    command: Tuple[str, ...]
    #: Whether it is loaded into servers, which have tests of their own: the stories.
    has_stories: bool


ENGINE = Crate("engine/src/lib.rs", ("test", "--package", "dsync-engine", "--lib", "--test", "model"), False)
MODULE = Crate("src/lib.rs", ("test", "--package", "dsync", "--lib"), True)


class Test(NamedTuple):
    program: str
    name: str
    seconds: float
    is_story: bool


class Tree:
    """A copy of the tree with a crate of its own."""

    def __init__(self, name: str, crate: Crate, level: str) -> None:
        """`level` is the compiler's: what is built once has to be fast, and what is built often to be built fast."""
        self.path = ROOT / "target" / "mutants" / name
        self.crate = crate
        self._level = level
        copy_tree(self.path)

    def write(self, file: str, text: str) -> None:
        path = self.path / file
        if path.read_text() != text:
            path.write_text(text)

    def reset(self, file: str) -> None:
        shutil.copyfile(ROOT / file, self.path / file)

    def cargo(self, *arguments: str) -> Iterator[Dict]:
        """Builds, and returns what cargo and the compiler say, as JSON."""
        environment = {**os.environ, "CARGO_TARGET_DIR": str(self.path / "target"), "CARGO_PROFILE_DEV_DEBUG": "0"}
        environment["RUSTFLAGS"] = "--cap-lints allow"
        environment["CARGO_PROFILE_TEST_OPT_LEVEL"] = self._level
        if self.crate.has_stories:
            # What servers load has no assertions, which take their time.
            environment |= {"CARGO_PROFILE_DEV_OPT_LEVEL": self._level, "CARGO_PROFILE_DEV_DEBUG_ASSERTIONS": "false"}
        command = ["cargo", *arguments, "--message-format=json"]
        built = subprocess.run(command, cwd=self.path, env=environment, capture_output=True, text=True, check=False)
        for line in built.stdout.splitlines():
            if line.startswith("{"):
                yield json.loads(line)

    def is_right(self) -> bool:
        """Whether the crate compiles, which takes a fraction of what its tests take."""
        return not any(is_error(said) for said in self.cargo("check", *self.crate.command[1:3], "--lib"))

    def build(self) -> Tuple[List[str], List[Dict]]:
        """Returns the programs, and the errors."""
        return self._tests(*self.crate.command)

    def stories(self) -> str:
        """Returns the program of the stories. It has nothing of the module."""
        programs, errors = self._tests("test", "--package", "dsync", "--test", "server")
        assert not errors, errors[0]["rendered"]
        return programs[0]

    def _tests(self, *command: str) -> Tuple[List[str], List[Dict]]:
        programs, errors = [], []
        for said in self.cargo(*command, "--no-run"):
            if said["reason"] == "compiler-artifact" and said.get("executable") and said["profile"]["test"]:
                programs.append(said["executable"])
            elif is_error(said):
                errors.append(said["message"])
        return programs, errors

    def module(self) -> str:
        """Returns the file that servers load."""
        built = self.cargo("build", "--package", "dsync", "--lib")
        files = (name for said in built for name in said.get("filenames", []))
        return next(name for name in files if name.endswith("libdsync.so"))


def is_error(said: Dict) -> bool:
    return said["reason"] == "compiler-message" and said["message"]["level"] == "error"


def spans(message: Dict) -> Iterator[Tuple[bool, str, int, int]]:
    """Yields where an error is, and what it refers to: whether it is the place itself, its file, and its lines."""
    for span in message["spans"]:
        yield span["is_primary"], span["file_name"], span["line_start"], span["line_end"]
    for child in message["children"]:
        for _, *where in spans(child):
            yield False, *where


def blamed(error: Dict, lines: Dict[str, Lines]) -> Tuple[bool, Set[int]]:
    """Returns the mutants that an error is in, and True; else those that it refers to, or else the nearest."""
    places = [place for place in spans(error) if place[1] in lines]
    for wanted in (True, False):
        found = [lines[file].numbers(first, last) for is_place, file, first, last in places if is_place is wanted]
        if any(found):
            return wanted, set().union(*found)
    return False, set().union(*(lines[file].nearest(first) for is_place, file, first, _ in places if is_place))


class Woven:
    """One program with all the mutants that can be in it. The others are in `alone`."""

    def __init__(self, crate: Crate, mutants: List[Mutant]) -> None:
        self.tree = Tree("woven", crate, "3")
        self._of_file: Dict[str, List[Mutant]] = {}
        for mutant in mutants:
            self._of_file.setdefault(mutant.file, []).append(mutant)
        self.woven: Set[int] = set()
        #: What they have is what the compiler refuses, and would be if they stood alone.
        self.wrong: Set[int] = set()
        self.programs = self._build()
        self.module = self.tree.module() if crate.has_stories else ""
        self.alone = [mutant for mutant in mutants if mutant.number not in self.woven | self.wrong]
        #: Those that reach none of these mutants, too: what must be built alone is in constants.
        self.all_tests: List[Test] = []

    def _build(self) -> List[str]:
        left_out: Set[int] = set()
        while True:
            texts = self._weave(left_out | self.wrong)
            programs, errors = self.tree.build()
            if not errors:
                return programs
            before = len(left_out | self.wrong)
            lines = {file: Lines(text) for file, text in texts.items()}
            for error in errors:
                is_own, numbers = blamed(error, lines)
                (self.wrong if is_own else left_out).update(numbers)
            assert len(left_out | self.wrong) > before, f"the woven tree does not compile:\n{errors[0]['rendered']}"
            print(f"mutants: {len(self.wrong)} do not compile, {len(left_out)} cannot be woven", flush=True)

    def _weave(self, left_out: Set[int]) -> Dict[str, str]:
        texts: Dict[str, str] = {}
        self.woven.clear()
        for file, mutants in self._of_file.items():
            weaver = Weaver((ROOT / file).read_text(), (it for it in mutants if it.number not in left_out))
            self.woven |= weaver.woven
            self.wrong |= weaver.wrong
            texts[file] = weaver.text()
        root = self.tree.crate.root
        texts[root] = texts.get(root, (ROOT / root).read_text()) + ASKS
        for file, text in texts.items():
            self.tree.write(file, text)
        return texts

    def tests(self) -> Dict[int, List[Test]]:
        """Returns the tests that reach each mutant."""
        reached: Dict[int, List[Test]] = {}
        for program in self.programs:
            folder = self.tree.path / "target" / "reached"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            done = run(program, [], {"DSYNC_REACHED": str(folder)}, None)
            assert done == 0, f"{program}: the tests fail without a mutant"
            told = (file.read_text().split(" ", 2) for file in folder.iterdir())
            seen = {name: (float(seconds), numbers) for name, seconds, numbers in told}
            for name in names_of(program):
                seconds, numbers = seen.get(name, (0.0, "{}"))
                self.all_tests.append(Test(program, name, seconds, False))
                for number in numbers.strip("{}").split(", "):
                    if number:
                        reached.setdefault(int(number), []).append(self.all_tests[-1])
        if self.tree.crate.has_stories:
            for number, stories in self._stories().items():
                reached.setdefault(number, []).extend(stories)
        return reached

    def _stories(self) -> Dict[int, List[Test]]:
        """Returns the stories in which a server comes to each mutant."""
        program = self.tree.stories()
        names = names_of(program)

        def tell(name: str) -> Tuple[float, Set[int]]:
            folder = self.tree.path / "target" / "reached" / name
            folder.mkdir(parents=True)
            start = time.monotonic()
            if run(program, [name], {"DSYNC_REACHED_IN": str(folder), "DSYNC_TEST_MODULE": self.module}, None) != 0:
                print(f"mutants: left out, because it fails without a mutant: {name}", flush=True)
                return 0.0, set()
            return time.monotonic() - start, {int(file.name) for file in folder.iterdir()}

        shutil.rmtree(self.tree.path / "target" / "reached", ignore_errors=True)
        reached: Dict[int, List[Test]] = {}
        with ThreadPoolExecutor(STORIES_AT_ONCE) as workers:
            for name, (seconds, numbers) in zip(names, workers.map(tell, names)):
                self.all_tests += [Test(program, name, seconds, True)] if numbers else []
                for number in numbers:
                    reached.setdefault(number, []).append(self.all_tests[-1])
        return reached

    def play(self, mutant: Mutant, tests: List[Test], longest: float) -> str:
        """Returns what became of a mutant that these tests reach."""
        variables = {"DSYNC_MUTANT": str(mutant.number), "DSYNC_TEST_MODULE": self.module}
        return meet(tests, mutant.file, variables, longest)


#: How often each test was among those that caught a mutant of a file.
HAS_CAUGHT: Dict[Tuple[str, str], int] = collections.Counter()


def meet(tests: List[Test], file: str, variables: Dict[str, str], longest: float) -> str:
    """Returns what becomes of a mutant of a file. It is `left` if it survives the tests that take no longer than
    `longest`. What has caught others of the file comes first, then what is quicker; stories come last, and of these the
    ones of commands first."""
    meets = [test for test in tests if test.seconds <= longest]
    meets.sort(key=lambda it: (-HAS_CAUGHT[file, it.name], not it.name.startswith("commands::"), it.seconds))
    stories = [test for test in meets if test.is_story]
    for group in itertools.chain(groups(test for test in meets if not test.is_story), groups(stories)):
        names, seconds = [test.name for test in group], sum(test.seconds for test in group)
        # Time passes in a story, so one that fails may do so because the machine is slow.
        for _ in range(2 if group[0].is_story else 1):
            at_once = STORIES_AT_ONCE if group[0].is_story else 1
            done = run(group[0].program, names, variables, PATIENCE + TIMES * seconds, at_once)
            if done == 0:
                break
        if done != 0:
            HAS_CAUGHT.update((file, name) for name in names)
            return "endless" if done is None else "caught"
    return "survived" if all(test.seconds <= longest for test in tests) else "left"


def groups(tests: Iterable[Test]) -> Iterator[List[Test]]:
    """Yields tests of one program, to run together."""
    together: Dict[str, List[Test]] = {}
    for test in tests:
        group = together.setdefault(test.program, [])
        group.append(test)
        most = GROUP_OF_STORIES if test.is_story else GROUP
        if len(group) == MANY or sum(it.seconds for it in group) >= most:
            yield together.pop(test.program)
    yield from together.values()


def run(program: str, names: List[str], variables: Dict[str, str], limit: float | None, at_once: int = 1) -> int | None:
    """Runs tests of a program: all if none is named. Returns its exit status; None if it has taken too long."""
    threads = str(at_once if names else os.cpu_count())
    command = ["prlimit", f"--as={MEMORY}", program, "--test-threads", threads, *(["--exact", *names] if names else [])]
    # The tests read files beside their crate.
    home = ROOT / "engine" if "dsync_engine" in program or "model" in Path(program).name else ROOT
    environment = {**os.environ, "CARGO_MANIFEST_DIR": str(home), "RUST_BACKTRACE": "0", **variables}
    # It replaces prlimit, and keeps its process id.
    started = subprocess.Popen(command, cwd=home, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        return started.wait(timeout=limit)
    except subprocess.TimeoutExpired:
        started.kill()
        started.wait()
        return None


class Alone:
    """Builds one mutant at a time. It meets all tests, because nothing tells which reach this one."""

    def __init__(self, crate: Crate, tests: List[Test]) -> None:
        self.tree = Tree("alone", crate, "1")
        self._tests = tests

    def play(self, mutant: Mutant, longest: float) -> str:
        self.tree.write(mutant.file, alone((ROOT / mutant.file).read_text(), mutant))
        try:
            if not self.tree.is_right():
                return "no program"
            programs, errors = self.tree.build()
            if errors:
                return "no program"
            built = {crate_of(program): program for program in programs}
            tests = [it if it.is_story else it._replace(program=built[crate_of(it.program)]) for it in self._tests]
            variables = {"DSYNC_TEST_MODULE": self.tree.module()} if self.tree.crate.has_stories else {}
            return meet(tests, mutant.file, variables, longest)
        finally:
            self.tree.reset(mutant.file)


def names_of(program: str) -> List[str]:
    """Returns the names of a program's tests."""
    listed = subprocess.run([program, "--list", "--format", "terse"], check=True, stdout=subprocess.PIPE, text=True)
    return [line.removesuffix(": test") for line in listed.stdout.splitlines() if line.endswith(": test")]


def crate_of(program: str) -> str:
    return Path(program).name.rpartition("-")[0]
