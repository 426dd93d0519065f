//! Several pieces of memory, read and written as one.

use crate::common::{engine, pattern, server, until};
use petasos::fabric::{Region, Slice};
use petasos_forward::{
    RelPath,
    client::{ConnectOptions, Remote},
    protocol::OpenFlags,
    server::ServerConfig,
};
use std::sync::atomic::Ordering::SeqCst;

/// Memory cut into pieces of these lengths.
fn cut(memory: &Region, lengths: &[usize]) -> Vec<Slice> {
    let mut at = 0;
    let piece = |len: &usize| {
        at += len;
        memory.slice(at - len, *len).unwrap()
    };
    lengths.iter().map(piece).collect()
}

#[test]
fn pieces_there_and_back() {
    let (server, memory) = server(ServerConfig::default());
    let window = 16 << 20;
    let many: Vec<usize> = (0..150).map(|n| 100 + n * 37).collect();
    let lengths: [&[usize]; 7] = [
        &[],
        &[0, 0],
        &[5],
        &[0, 1000, 0, 300_000, 7, 0],
        &many,
        // Cut where the window ends; and ending there exactly.
        &[3, window, 0, 4 << 20, 11],
        &[window / 2, window / 2, window],
    ];
    for address in server.addresses() {
        let engine = engine(&address);
        let connect = Remote::connect(&engine, &address, ConnectOptions::default());
        let remote = engine.block_on(connect).unwrap();
        let flags = OpenFlags::READ.with(OpenFlags::WRITE).with(OpenFlags::CREATE);
        for (seed, lengths) in lengths.iter().enumerate() {
            let name = format!("{}-{seed}", address.scheme());
            let path = RelPath::parse(name.as_bytes()).unwrap();
            let file = engine.block_on(remote.open(&path, flags, 0o600)).unwrap();
            let len: usize = lengths.iter().sum();
            let data = pattern(len, seed as u64);
            let from = Region::from_vec(data.clone());
            let end = engine.block_on(file.write_vectored(9, &cut(&from, lengths))).unwrap();
            assert_eq!(end, 9 + len as u64);
            // Lent no more: the memory has no other holder.
            assert_eq!(from.into_exclusive().unwrap().len(), len, "lent still");
            let stored = memory.contents(&name).unwrap();
            assert!(stored.get(9..).unwrap_or(&[]) == data, "{name}");

            let back = Region::zeroed(len);
            let got = engine.block_on(file.read_vectored(9, &cut(&back, lengths))).unwrap();
            assert_eq!(got, len as u64);
            assert!(back.to_vec() == data, "{name}");
            // Past the end: what is there, and not a byte more.
            let into = Region::from_vec(vec![0xee; len]);
            let skipped = len / 3;
            let at = 9 + skipped as u64;
            let got = engine.block_on(file.read_vectored(at, &cut(&into, lengths))).unwrap();
            assert_eq!(got, (len - skipped) as u64);
            let into = into.into_exclusive().unwrap();
            assert!(into[..len - skipped] == data[skipped..], "{name}");
            assert!(into[len - skipped..].iter().all(|byte| *byte == 0xee), "{name}");
            let beyond = 10 + len as u64;
            let pieces = cut(&back, lengths);
            assert_eq!(engine.block_on(file.read_vectored(beyond, &pieces)).unwrap(), 0);
            engine.block_on(file.close()).unwrap();
        }
        // At the end, wherever that is; more than one lot.
        let path = RelPath::parse(format!("{}-log", address.scheme()).as_bytes()).unwrap();
        let file = remote.open(&path, flags.with(OpenFlags::APPEND), 0o600);
        let file = engine.block_on(file).unwrap();
        let len: usize = many.iter().sum();
        let from = Region::from_vec(pattern(len, 1));
        for round in 1..=2 {
            let end = engine.block_on(file.write_vectored(0, &cut(&from, &many))).unwrap();
            assert_eq!(end, (round * len) as u64);
        }
        engine.block_on(file.close()).unwrap();
        engine.block_on(remote.disconnect()).unwrap();
    }
    // A worker lets go of a file after it has answered.
    until("all is closed", || memory.watch.open.load(SeqCst) == 0);
    assert_eq!(server.status().memory[0], 0);
}
