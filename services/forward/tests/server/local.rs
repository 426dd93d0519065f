//! The server before a real file system.

use crate::common::{Client, EVERYWHERE, pattern};
use petasos::{OpenOptions, fabric::Region};
use petasos_forward::{
    protocol::{Creation, Finish, Kind, Node, OpenFlags, XattrMode},
    server::{Server, ServerConfig},
    storage::Local,
};
use rustix::io::Errno;
use std::{os::unix::fs::PermissionsExt, sync::Arc};

#[test]
fn files_of_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let local = Arc::new(Local::open(root).unwrap());
    let options = OpenOptions::default();
    let server = Server::listen(local, &EVERYWHERE, &options, ServerConfig::default()).unwrap();
    for address in server.addresses() {
        let client = Client::new(&address);
        let (calls, id) = (&client.calls, client.session);
        let data = pattern((5 << 20) + 77, 4);
        let file = client.open("file");
        client.write_from(file, 0, data.clone()).unwrap();
        assert!(std::fs::read(root.join("file")).unwrap() == data);
        let into = Region::zeroed(6 << 20);
        assert_eq!(client.read_into(file, 0, into.whole()).unwrap(), data.len() as u64);
        assert!(into.slice(0, data.len()).unwrap().to_vec() == data);
        for round in 0..3 {
            // From the cache, on the engine's thread.
            let read = client.wait(calls.read(id, file, round * 1000, 5000)).unwrap();
            assert!(read[..] == data[round as usize * 1000..][..5000]);
        }
        let end = client.open_as("file", OpenFlags::WRITE.with(OpenFlags::APPEND));
        assert_eq!(client.write_from(end, 0, data.clone()).unwrap(), 2 * data.len() as u64);

        let hash = Some(*blake3::hash(&data).as_bytes());
        let mut finish =
            Finish { size: data.len() as u64, hash, replace: true, ..Finish::default() };
        finish.set.mode = Some(0o640);
        let (staged, _) = client.wait(calls.stage(id, [5; 16], b"whole".to_vec())).unwrap();
        client.write_from(staged, 0, data.clone()).unwrap();
        let attr = client.wait(calls.publish(id, staged, b"whole".to_vec(), finish)).unwrap();
        assert_eq!((attr.size, attr.mode), (data.len() as u64, 0o640));
        assert!(std::fs::read(root.join("whole")).unwrap() == data);
        assert_eq!(
            std::fs::metadata(root.join("whole")).unwrap().permissions().mode() & 0o7777,
            0o640
        );

        client.wait(calls.make_symlink(id, b"link".to_vec(), b"/etc/passwd".to_vec())).unwrap();
        let escaped = client.wait(calls.get(id, b"link".to_vec(), 1 << 20));
        assert!(escaped.is_err(), "{escaped:?}");
        let link = client.wait(calls.stat(id, Node::Path(b"link".to_vec()), false)).unwrap();
        assert_eq!(link.kind, Kind::Symlink);
        let small = Finish { size: 9, replace: false, ..Finish::default() };
        let put =
            || client.wait(calls.put(id, b"small".to_vec(), data[..9].to_vec().into(), small));
        assert_eq!(put().unwrap().size, 9);
        assert_eq!(put().unwrap_err().errno(), Errno::EXIST);
        let node = Node::File(file);
        let value = b"value".to_vec();
        let set =
            calls.set_xattr(id, node.clone(), b"user.x".to_vec(), value.into(), XattrMode::Any);
        // Not every file system has them.
        if client.wait(set).is_ok() {
            assert_eq!(
                &client.wait(calls.get_xattr(id, node, b"user.x".to_vec())).unwrap()[..],
                b"value"
            );
        }
        client
            .wait(calls.make_dir(id, b"d".to_vec(), Creation { mode: 0o750, owner: None }))
            .unwrap();
        let (_, page) = client.wait(calls.open_dir(id, Vec::new())).unwrap();
        let mut names: Vec<_> = page.entries.iter().map(|entry| &entry.name[..]).collect();
        names.sort();
        assert_eq!(names, [&b"d"[..], b"file", b"link", b"small", b"whole"]);
        client.wait(calls.goodbye(id)).unwrap();
        for name in ["file", "link", "small", "whole"] {
            std::fs::remove_file(root.join(name)).unwrap();
        }
        std::fs::remove_dir(root.join("d")).unwrap();
    }
    assert_eq!(server.status().memory[0], 0);
}
