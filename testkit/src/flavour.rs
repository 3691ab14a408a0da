//! The product and version of a server, for the few tests whose result depends on them.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Product {
    Redis,
    Valkey,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flavour {
    pub product: Product,
    /// Major, minor, patch: compares as versions do.
    pub version: (u32, u32, u32),
}

impl Flavour {
    /// Reads `INFO server`. Valkey also answers a `redis_version`, of the Redis it is compatible with.
    pub(crate) fn from_info(info: &str) -> Flavour {
        let field = |name: &str| {
            info.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        };
        let (product, version) = match field("valkey_version") {
            Some(version) => (Product::Valkey, Some(version)),
            None => (Product::Redis, field("redis_version")),
        };
        let numbers: Option<Vec<u32>> =
            version.and_then(|text| text.split('.').map(|part| part.parse().ok()).collect());
        match numbers.as_deref() {
            Some([major, minor, patch]) => Flavour {
                product,
                version: (*major, *minor, *patch),
            },
            _ => panic!("no version of three numbers in INFO server:\n{info}"),
        }
    }
}
