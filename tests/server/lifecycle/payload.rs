//! Payloads of DUMP and RESTORE, taken apart and made by hand.
//!
//! A payload is a body and a footer, which has the server's version and a CRC-64 of all bytes before it. The body of a
//! module's value is a type, the module's number with the version of its encoding, and packed strings, each with an
//! opcode before it. Payloads made here have a correct footer: otherwise the server refuses them and the module never
//! sees them.

use crate::support::steps::unix_ms;
use crate::support::{sealed as checked, *};

/// The CRC-64 of Redis: Jones' polynomial, reflected, starting at zero.
pub fn crc64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |crc: u64, byte| {
        (0..8).fold(crc ^ u64::from(*byte), |crc, _| {
            if crc & 1 == 1 {
                (crc >> 1) ^ 0x95ac_9329_ac4b_c9b5
            } else {
                crc >> 1
            }
        })
    })
}

pub const FOOTER: usize = 10;

/// The body of a DUMP payload, and the two bytes of the version in its footer.
pub fn opened(payload: &[u8]) -> (Vec<u8>, [u8; 2]) {
    let (body, footer) = payload.split_at(payload.len() - FOOTER);
    (body.to_vec(), [footer[0], footer[1]])
}

/// The body with a correct footer.
pub fn sealed(body: &[u8], version: [u8; 2]) -> Vec<u8> {
    let mut payload = [body, &version].concat();
    payload.extend_from_slice(&crc64(&payload).to_le_bytes());
    payload
}

pub fn dump(client: &mut Client, key: &str) -> Vec<u8> {
    client.ask(format!("DUMP {key}")).as_bytes().to_vec()
}

/// Makes keys of each family with every kind of content; returns each key and its family's prefix.
pub fn add_fixtures(client: &mut Client) -> [(&'static str, &'static str); 5] {
    client.ask("DLOCK.ACQUIRE lock TOKEN 8f14e45f-ceea-467f-a8f5-6d1e2c3b4a59 OWNER o");
    client.ask("DLOCK.ACQUIRE shared SHARED TOKEN t1 OWNER one");
    client.ask("DLOCK.ACQUIRE shared SHARED TOKEN t2");
    client.ask("DSEM.ACQUIRE sem LIMIT 9 PERMITS 4 TOKEN t1");
    client.ask("DSEM.ACQUIRE sem LIMIT 8 PERMITS 2");
    client.ask("DSEM.LIMIT sem 7");
    client.ask("DWG.EXPECT group 5");
    client.ask("DWG.ADD group LIMIT 3 TOKEN t1");
    client.ask("DWG.DONE group t1");
    client.ask("DWG.ADD group LIMIT 4 TOKEN t2");
    client.ask("DONCE.BEGIN once TOKEN t1");
    call!(client, "DONCE.FAIL", "once", "t1", "REASON", "no disk");
    client.ask("DONCE.BEGIN once TOKEN t2");
    [
        ("lock", "DLOCK"),
        ("shared", "DLOCK"),
        ("sem", "DSEM"),
        ("group", "DWG"),
        ("once", "DONCE"),
    ]
}

/// The opcode of a string in a module's value.
pub const STRING: u8 = 5;

/// The packed strings of a payload, each with the position of its first byte. They must not be compressed.
pub fn strings(body: &[u8]) -> Vec<(usize, Vec<u8>)> {
    let mut strings = Vec::new();
    let mut at = 10;
    while body[at] == STRING {
        let (len, start) = match body[at + 1] {
            len @ 0..0x40 => (usize::from(len), at + 2),
            high @ 0x40..0x80 => {
                let len = usize::from(high & 0x3f) << 8 | usize::from(body[at + 2]);
                (len, at + 3)
            }
            0x80 => {
                let len = body[at + 2..at + 6]
                    .iter()
                    .fold(0, |len: usize, byte| len << 8 | usize::from(*byte));
                (len, at + 6)
            }
            other => panic!("a length that begins with {other:#04x}"),
        };
        strings.push((start, body[start..start + len].to_vec()));
        at = start + len;
    }
    assert_eq!(body[at..], [0], "the end of a module's value");
    strings
}

/// A payload in the making, as a module writes it: strings, each with its opcode before it.
pub struct Payload {
    body: Vec<u8>,
    version: [u8; 2],
}

impl Payload {
    /// Begins with the type and the module's number of a real payload, that of `key`.
    pub fn like(client: &mut Client, key: &str) -> Payload {
        let (body, version) = opened(&dump(client, key));
        assert_eq!(
            (body[0], body[1]),
            (7, 0x81),
            "a module's value, and a number of eight bytes"
        );
        Payload {
            body: body[..10].to_vec(),
            version,
        }
    }

    pub fn string(mut self, text: &[u8]) -> Payload {
        self.body.extend_from_slice(&[STRING, 0x80]);
        self.body
            .extend_from_slice(&(text.len() as u32).to_be_bytes());
        self.body.extend_from_slice(text);
        self
    }

    pub fn raw(mut self, bytes: &[u8]) -> Payload {
        self.body.extend_from_slice(bytes);
        self
    }

    /// Ends the module's value; returns the payload with its footer.
    pub fn end(self) -> Vec<u8> {
        self.raw(&[0]).sealed()
    }

    pub fn sealed(&self) -> Vec<u8> {
        sealed(&self.body, self.version)
    }
}

/// A GRANT in a packed string, with any numbers, allowed or not.
#[derive(Clone)]
pub struct PackedHold {
    pub kind: u8,
    pub fence: u64,
    pub token: Vec<u8>,
    pub lease: u64,
    pub deadline: u64,
    pub granted: u64,
    pub owner: Vec<u8>,
}

impl PackedHold {
    pub fn packed(&self) -> Vec<u8> {
        let mut bytes = vec![2, 0, self.kind];
        let zigzag = |difference: i64| ((difference << 1) ^ (difference >> 63)).cast_unsigned();
        let difference = |a: u64, b: u64| zigzag(a.wrapping_sub(b).cast_signed());
        leb128(self.fence, &mut bytes);
        leb128(difference(self.granted, self.fence / 1_000), &mut bytes);
        leb128(self.lease, &mut bytes);
        let end = self.granted.wrapping_add(self.lease);
        leb128(difference(self.deadline, end), &mut bytes);
        for text in [&self.token, &self.owner] {
            leb128(text.len() as u64, &mut bytes);
            bytes.extend_from_slice(text);
        }
        checked(&bytes)
    }
}

pub fn leb128(mut n: u64, to: &mut Vec<u8>) {
    while n >= 0x80 {
        to.push(n.to_le_bytes()[0] | 0x80);
        n >>= 7;
    }
    to.push(n.to_le_bytes()[0]);
}

pub fn good_hold() -> PackedHold {
    let now = unix_ms();
    PackedHold {
        kind: 0x82,
        fence: now * 1000,
        token: b"token".to_vec(),
        lease: 30_000,
        deadline: now + 30_000,
        granted: now,
        owner: b"owner".to_vec(),
    }
}

/// Other values of a byte: each with one bit flipped, and some extremes.
pub fn others(byte: u8) -> impl Iterator<Item = u8> {
    let flips = (0..8).map(move |bit| byte ^ (1 << bit));
    let more = [0, 0x7f, 0x80, 0xff];
    flips.chain(more).filter(move |other| *other != byte)
}

/// A server that does not compress strings in payloads.
pub fn plain_server() -> Server {
    Server::builder().config("rdbcompression", "no").start()
}
