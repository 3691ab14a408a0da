//! Circles of arrows: files each of which leads to all others of them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;

use crate::uses::Arrows;

/// The files of each circle.
pub(crate) fn circles(arrows: &Arrows) -> Vec<BTreeSet<String>> {
    let mut reached: BTreeMap<&String, BTreeSet<&String>> = BTreeMap::new();
    for (from, _) in arrows.keys() {
        if !reached.contains_key(from) {
            let mut seen = BTreeSet::new();
            let mut next = vec![from];
            while let Some(at) = next.pop() {
                next.extend(after(arrows, at).filter(|to| seen.insert(*to)));
            }
            reached.insert(from, seen);
        }
    }
    let reaches = |from, to| reached.get(from).is_some_and(|seen| seen.contains(to));
    let mut circles = BTreeSet::new();
    for file in reached.keys() {
        let both = reached[file].iter().filter(|other| reaches(*other, file));
        let circle: BTreeSet<String> = both.map(|file| (*file).clone()).collect();
        circles.insert(circle);
    }
    circles
        .into_iter()
        .filter(|circle| circle.len() > 1)
        .collect()
}

fn after<'a>(arrows: &'a Arrows, from: &'a String) -> impl Iterator<Item = &'a String> {
    let after = arrows.range((from.clone(), String::new())..);
    after
        .map(|((of, to), _)| (of, to))
        .take_while(move |(of, _)| *of == from)
        .map(|(_, to)| to)
}

/// Describes a circle: short ways round that have all its arrows, and for each arrow where it is.
pub(crate) fn describe(arrows: &Arrows, circle: &BTreeSet<String>) -> String {
    let inner: Arrows = (arrows.iter())
        .filter(|((from, to), _)| circle.contains(from) && circle.contains(to))
        .map(|(arrow, example)| (arrow.clone(), example.clone()))
        .collect();
    let mut text = format!("a circle of {} files\n", circle.len());
    let mut told = BTreeSet::new();
    let mut ways: Vec<_> = inner
        .keys()
        .map(|(from, to)| way_round(&inner, from, to))
        .collect();
    ways.sort_by_key(Vec::len);
    for way in ways {
        let steps: Vec<_> = way
            .windows(2)
            .map(|w| (w[0].clone(), w[1].clone()))
            .collect();
        if steps.iter().all(|step| told.contains(step)) {
            continue;
        }
        let _ = writeln!(text, "  {}", way.join(" → "));
        for step in steps {
            if told.insert(step.clone()) {
                let _ = writeln!(text, "    {}", inner[&step].describe(&step.0, &step.1));
            }
        }
    }
    text
}

/// The shortest way that begins with this arrow and leads back to where it begins.
fn way_round(arrows: &Arrows, from: &String, to: &String) -> Vec<String> {
    let mut before: BTreeMap<&String, &String> = BTreeMap::from([(to, from)]);
    let mut next = VecDeque::from([to]);
    while let Some(at) = next.pop_front() {
        for to in after(arrows, at) {
            before.entry(to).or_insert_with(|| {
                next.push_back(to);
                at
            });
        }
    }
    let mut way = vec![from.clone()];
    let mut at = before[from];
    while at != from {
        way.push(at.clone());
        at = before[at];
    }
    way.push(from.clone());
    way.reverse();
    way
}
