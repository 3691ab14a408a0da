//! What can stand in a request that a test writes: strings, bytes and numbers.

/// A value that can be an argument in `call!` and `send!`.
pub trait Argument {
    fn to_argument(&self) -> Vec<u8>;
}

impl<A: Argument + ?Sized> Argument for &A {
    fn to_argument(&self) -> Vec<u8> {
        (**self).to_argument()
    }
}

impl Argument for [u8] {
    fn to_argument(&self) -> Vec<u8> {
        self.to_vec()
    }
}

impl<const N: usize> Argument for [u8; N] {
    fn to_argument(&self) -> Vec<u8> {
        self.to_vec()
    }
}

impl Argument for Vec<u8> {
    fn to_argument(&self) -> Vec<u8> {
        self.clone()
    }
}

macro_rules! arguments_by_display {
    ($($type:ty),+) => {$(
        impl Argument for $type {
            fn to_argument(&self) -> Vec<u8> {
                self.to_string().into_bytes()
            }
        }
    )+};
}

arguments_by_display!(
    str, String, char, i32, i64, i128, isize, u8, u16, u32, u64, u128, usize, f64
);

/// `call!(client, "SET", key, 5)`: sends the request and returns the reply. Arguments are strings,
/// bytes or numbers.
#[macro_export]
macro_rules! call {
    ($client:expr, $($argument:expr),+ $(,)?) => {
        $client.call(&[$($crate::Argument::to_argument(&$argument)),+])
    };
}

/// `send!(client, "BLPOP", key, 0)`: sends the request and leaves the reply for `recv`.
#[macro_export]
macro_rules! send {
    ($client:expr, $($argument:expr),+ $(,)?) => {
        $client.send(&[$($crate::Argument::to_argument(&$argument)),+])
    };
}
