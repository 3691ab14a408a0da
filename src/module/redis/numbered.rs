//! A map whose keys are numbers from a counter.
//!
//! Keys that were given one after the other share a page, so that most additions and removals move nothing. A tree of
//! the values themselves was rejected, because it moves the neighbours of each value that it removes; and a hash table,
//! because it stalls the server when it doubles at 100,000 values.

use std::collections::BTreeMap;

const PER_PAGE: usize = 64;

/// A page exists while it has values.
pub(super) struct Numbered<T>(BTreeMap<u64, Page<T>>);

struct Page<T> {
    values: Box<[Option<T>; PER_PAGE]>,
    /// How many of them there are.
    len: usize,
}

/// The page of a number, and where the number is in it.
fn place(number: u64) -> (u64, usize) {
    let per_page = PER_PAGE as u64;
    (number / per_page, (number % per_page) as usize)
}

impl<T> Numbered<T> {
    pub(super) const fn new() -> Self {
        Numbered(BTreeMap::new())
    }

    pub(super) fn contains(&self, number: u64) -> bool {
        let (page, at) = place(number);
        self.0
            .get(&page)
            .is_some_and(|page| page.values[at].is_some())
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let (page, at) = place(number);
        self.0.get_mut(&page)?.values[at].as_mut()
    }

    /// Adds a value. A value that has the number already is replaced.
    pub(super) fn insert(&mut self, number: u64, value: T) {
        let (page, at) = place(number);
        let page = self.0.entry(page).or_insert_with(|| Page {
            values: Box::new([const { None }; PER_PAGE]),
            len: 0,
        });
        let before = page.values[at].replace(value);
        page.len += usize::from(before.is_none());
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<T> {
        let (number, at) = place(number);
        let page = self.0.get_mut(&number)?;
        let value = page.values[at].take()?;
        page.len -= 1;
        if page.len == 0 {
            self.0.remove(&number);
        }
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbered_map_agrees_with_a_tree_and_keeps_no_empty_page() {
        let mut map = Numbered::new();
        let mut model = BTreeMap::new();
        let mut random = 7_u64;
        for step in 0..20_000_u64 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            // Five or six numbers in each page, so that pages come and go.
            let number = (random >> 33) % 24 * 13;
            match (random >> 60) % 4 {
                0 => {
                    map.insert(number, step);
                    model.insert(number, step);
                }
                1 => assert_eq!(map.remove(number), model.remove(&number), "{number}"),
                2 => assert_eq!(map.get_mut(number), model.get_mut(&number), "{number}"),
                _ => assert_eq!(
                    map.contains(number),
                    model.contains_key(&number),
                    "{number}"
                ),
            }
            let pages: Vec<u64> = map.0.keys().copied().collect();
            let mut expected: Vec<u64> = model
                .keys()
                .map(|number| number / PER_PAGE as u64)
                .collect();
            expected.dedup();
            assert_eq!(pages, expected, "step {step}");
        }
    }
}
