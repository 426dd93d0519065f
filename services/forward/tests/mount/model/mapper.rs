//! A process that maps files. While a mapping ends, the system waits for what was changed in it to
//! be written, and lets no thread of the process have more memory meanwhile: so it cannot be the
//! one that serves the file system.

use petasos_testing::{Mapped, Process, again, role};
use std::{
    collections::HashMap,
    fs::File,
    io::BufRead,
    path::{Path, PathBuf},
};

/// Bytes that tell where and when they were written.
pub(super) fn filling(stamp: u8, at: u64, len: usize) -> Vec<u8> {
    // By the parts that have the same byte: tests are compiled without optimisation.
    let mut bytes = vec![0; len];
    let mut done = 0;
    while done < len {
        let here = at + done as u64;
        let end = len.min(done + (512 - here % 512) as usize);
        bytes[done..end].fill(stamp ^ (here / 512) as u8 | 1);
        done = end;
    }
    bytes
}

pub(crate) struct Mapper(Process);

impl Mapper {
    pub(crate) fn start() -> Mapper {
        Mapper(again("model::mapper::maps_for_others", "mapper").start())
    }

    fn ask(&mut self, words: &str) -> Result<String, String> {
        self.0.tell(words);
        let answer = self.0.line("mapper: ");
        match answer.strip_prefix("failed ") {
            Some(text) => Err(text.to_owned()),
            None => Ok(answer),
        }
    }

    pub(crate) fn read(
        &mut self,
        path: &Path,
        size: usize,
        at: u64,
        len: usize,
    ) -> Result<Vec<u8>, String> {
        let text = self.ask(&format!("read {} {size} {at} {len} 0 0", path.display()))?;
        let digits = text.strip_prefix("read ").unwrap_or_default().as_bytes();
        let byte = |two: &[u8]| u8::from_str_radix(str::from_utf8(two).unwrap(), 16).unwrap();
        Ok(digits.chunks(2).map(byte).collect())
    }

    pub(super) fn write(
        &mut self,
        path: &Path,
        size: usize,
        at: u64,
        len: usize,
        stamp: u8,
        sync: bool,
    ) -> Result<(), String> {
        let sync = u8::from(sync);
        self.ask(&format!("write {} {size} {at} {len} {stamp} {sync}", path.display())).map(drop)
    }

    /// Closes what it has open.
    pub(super) fn close(&mut self) -> Result<(), String> {
        self.ask("close - 0 0 0 0 0").map(drop)
    }
}

/// Does what is asked for, until nothing more is.
#[test]
fn maps_for_others() {
    if role().as_deref() != Some("mapper") {
        return;
    }
    let mut files = HashMap::new();
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let [what, path, size, at, len, stamp, sync] = words[..] else { panic!("{line}") };
        let number = |text: &str| text.parse::<usize>().unwrap();
        let (size, at, len) = (number(size), number(at), number(len));
        if what == "close" {
            files.clear();
            println!("mapper: closed");
            continue;
        }
        let file = files
            .entry(PathBuf::from(path))
            .or_insert_with(|| File::options().read(true).write(true).open(path).unwrap());
        let done = Mapped::new(file, size).and_then(|mapped| {
            if what == "write" {
                mapped.write(at, &filling(number(stamp) as u8, at as u64, len));
                if sync == "1" {
                    mapped.sync()?;
                }
                return Ok("written".to_owned());
            }
            let mut got = vec![0; len];
            mapped.read(at, &mut got);
            let digits: String = got.iter().map(|byte| format!("{byte:02x}")).collect();
            Ok(format!("read {digits}"))
        });
        match done {
            Ok(text) => println!("mapper: {text}"),
            Err(error) => println!("mapper: failed {error}"),
        }
    }
}
