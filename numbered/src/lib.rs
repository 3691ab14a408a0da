//! A map whose keys are numbers from a counter.
//!
//! Keys that were given one after the other share a page, so that most additions and removals move nothing. A tree of
//! the values themselves was rejected, because it moves the neighbours of each value that it removes; and a hash table,
//! because it stalls the server when it doubles at 100,000 values.
//!
//! A crate of its own, because the engine has such maps, and the only code that knows the server, which may not use the
//! engine.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;

/// A page exists while it has values. The fewer numbers a page has, the less memory a value takes whose neighbours are
/// gone, and the more often a page comes and goes.
#[derive(PartialEq, Debug)]
pub struct Numbered<T, const PER_PAGE: usize = 64> {
    pages: BTreeMap<u64, Page<T, PER_PAGE>>,
    len: usize,
}

#[derive(PartialEq, Debug)]
struct Page<T, const PER_PAGE: usize> {
    values: Box<[Option<T>; PER_PAGE]>,
    /// How many of them there are.
    len: usize,
}

impl<T, const PER_PAGE: usize> Default for Numbered<T, PER_PAGE> {
    fn default() -> Self {
        Numbered::new()
    }
}

impl<T, const PER_PAGE: usize> Numbered<T, PER_PAGE> {
    pub const fn new() -> Self {
        let pages = BTreeMap::new();
        Numbered { pages, len: 0 }
    }

    /// The page of a number, and where the number is in it.
    fn place(number: u64) -> (u64, usize) {
        let per_page = PER_PAGE as u64;
        (number / per_page, (number % per_page) as usize)
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn contains(&self, number: u64) -> bool {
        self.get(number).is_some()
    }

    pub fn get(&self, number: u64) -> Option<&T> {
        let (page, at) = Self::place(number);
        self.pages.get(&page)?.values[at].as_ref()
    }

    pub fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let (page, at) = Self::place(number);
        self.pages.get_mut(&page)?.values[at].as_mut()
    }

    /// Adds a value. A value that has the number already is replaced.
    pub fn insert(&mut self, number: u64, value: T) {
        let (page, at) = Self::place(number);
        let page = self.pages.entry(page).or_insert_with(|| Page {
            values: Box::new([const { None }; PER_PAGE]),
            len: 0,
        });
        if page.values[at].replace(value).is_none() {
            page.len += 1;
            self.len += 1;
        }
    }

    pub fn remove(&mut self, number: u64) -> Option<T> {
        self.remove_if(number, |_| true)
    }

    /// Removes the value with this number if it is one of these.
    pub fn remove_if(&mut self, number: u64, is_one: impl FnOnce(&mut T) -> bool) -> Option<T> {
        let (number, at) = Self::place(number);
        let page = self.pages.get_mut(&number)?;
        let value = page.values[at].take_if(is_one)?;
        page.len -= 1;
        self.len -= 1;
        if page.len == 0 {
            self.pages.remove(&number);
        }
        Some(value)
    }

    /// Returns all values with their numbers, in the order of these.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.pages.iter().flat_map(|(page, Page { values, .. })| {
            let numbers = page * PER_PAGE as u64..;
            let values = numbers.zip(values.iter());
            values.filter_map(|(number, value)| Some((number, value.as_ref()?)))
        })
    }

    /// Takes the map apart, one page at a step.
    pub fn into_pieces(self) -> impl Iterator<Item = ()> {
        self.pages.into_iter().map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PER_PAGE: usize = 64;

    #[test]
    fn numbered_map_agrees_with_a_tree_and_keeps_no_empty_page() {
        let mut map = Numbered::<u64, PER_PAGE>::new();
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
                2 => {
                    let is_even = |value: &mut u64| value.is_multiple_of(2);
                    let expected = model.get(&number).copied().filter(|value| value % 2 == 0);
                    expected.map(|_| model.remove(&number));
                    assert_eq!(map.remove_if(number, is_even), expected, "{number}");
                }
                _ => {
                    assert_eq!(map.get_mut(number), model.get_mut(&number), "{number}");
                    assert_eq!(
                        map.contains(number),
                        model.contains_key(&number),
                        "{number}"
                    );
                }
            }
            let pages: Vec<u64> = map.pages.keys().copied().collect();
            let mut expected: Vec<u64> = model
                .keys()
                .map(|number| number / PER_PAGE as u64)
                .collect();
            expected.dedup();
            assert_eq!(pages, expected, "step {step}");
            assert_eq!(map.len(), model.len(), "step {step}");
            let entries = model.iter().map(|(number, value)| (*number, value));
            assert!(map.iter().eq(entries), "step {step}");
        }
    }
}
