//! Names and times of files, as people and programs read them.

use crate::exit::{Code, Failure, Outcome};
use petasos_forward::protocol::{Attr, Kind, Timestamp};
use serde_json::{Value, json};
use std::io::{self, BufWriter, IsTerminal, Write};

/// Standard output, for bytes. That the reader has gone is no failure.
pub(super) struct Out {
    out: BufWriter<io::StdoutLock<'static>>,
    /// Control characters in names would be commands to it.
    terminal: bool,
}

impl Out {
    pub(super) fn new() -> Out {
        let out = io::stdout().lock();
        Out { terminal: out.is_terminal(), out: BufWriter::with_capacity(64 << 10, out) }
    }

    /// Writes bytes as they are; false when the reader has gone.
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> Outcome<bool> {
        written(self.out.write_all(bytes))
    }

    /// Writes a text, a name, and a line end.
    pub(super) fn line(&mut self, before: &str, name: &[u8]) -> Outcome<bool> {
        let mut line = before.as_bytes().to_vec();
        line.extend(name.iter().map(|byte| match byte {
            0..32 | 127 if self.terminal => b'?',
            byte => *byte,
        }));
        line.push(b'\n');
        self.bytes(&line)
    }

    /// Writes a line of JSON.
    pub(super) fn json(&mut self, value: &Value) -> Outcome<bool> {
        self.bytes(format!("{value}\n").as_bytes())
    }

    pub(super) fn finish(mut self) -> Outcome {
        written(self.out.flush()).map(drop)
    }
}

fn written(result: io::Result<()>) -> Outcome<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => {
            Err(Failure::new(Code::Failed, format!("writing to standard output: {error}")))
        }
    }
}

/// A path for JSON. What is no UTF-8 comes in hexadecimal as well, under `raw`.
pub(super) fn name_json(path: &[u8]) -> Value {
    match std::str::from_utf8(path) {
        Ok(text) => json!({ "path": text }),
        Err(_) => {
            let raw: String = path.iter().map(|byte| format!("{byte:02x}")).collect();
            json!({ "path": String::from_utf8_lossy(path), "raw": raw })
        }
    }
}

/// What something is, with its path, for JSON.
pub(super) fn attr_json(path: &[u8], attr: &Attr) -> Value {
    let mut value = name_json(path);
    if let (Some(value), Ok(Value::Object(attr))) =
        (value.as_object_mut(), serde_json::to_value(attr))
    {
        value.extend(attr);
    }
    value
}

/// Kind and permissions as `ls -l` shows them.
pub(super) fn mode(attr: &Attr) -> String {
    let kind = match attr.kind {
        Kind::File => '-',
        Kind::Directory => 'd',
        Kind::Symlink => 'l',
        Kind::Fifo => 'p',
        Kind::Socket => 's',
        Kind::CharDevice => 'c',
        Kind::BlockDevice => 'b',
    };
    let special = [(0o4000, 's', 'S'), (0o2000, 's', 'S'), (0o1000, 't', 'T')];
    let mut text = String::from(kind);
    for (shift, (bit, with, without)) in [6, 3, 0].into_iter().zip(special) {
        let bits = attr.mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (attr.mode & bit != 0, bits & 1 != 0) {
            (false, false) => '-',
            (false, true) => 'x',
            (true, true) => with,
            (true, false) => without,
        });
    }
    text
}

/// A point in time, in UTC: `2026-11-21 17:05:33`.
pub(super) fn time(time: Timestamp) -> String {
    let (days, second) = (time.seconds.div_euclid(86_400), time.seconds.rem_euclid(86_400));
    // Days since 0000-03-01 in eras of 400 years, of 146,097 days each: leap days come last.
    let shifted = days + 719_468;
    let (era, day) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year + carry;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00"),
            (951_827_696, "2000-02-29 12:34:56"),
            (-1, "1969-12-31 23:59:59"),
            (4_102_444_800, "2100-01-01 00:00:00"),
            (1_795_280_733, "2026-11-21 17:05:33"),
        ] {
            assert_eq!(time(Timestamp { seconds, nanos: 0 }), text);
        }
    }

    #[test]
    fn modes() {
        let attr = |kind, mode| Attr {
            kind,
            mode,
            links: 1,
            uid: 0,
            gid: 0,
            size: 0,
            blocks: 0,
            ino: 1,
            atime: Timestamp::default(),
            mtime: Timestamp::default(),
            ctime: Timestamp::default(),
        };
        assert_eq!(mode(&attr(Kind::File, 0o644)), "-rw-r--r--");
        assert_eq!(mode(&attr(Kind::Directory, 0o1777)), "drwxrwxrwt");
        assert_eq!(mode(&attr(Kind::File, 0o6700)), "-rws--S---");
    }

    #[test]
    fn names() {
        assert_eq!(name_json(b"a"), json!({ "path": "a" }));
        assert_eq!(name_json(b"a\xff")["raw"], "61ff");
    }
}
