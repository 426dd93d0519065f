//! Each method does what it says, over each transport.

use crate::common::{Client, pattern, server};
use petasos::fabric::Region;
use petasos_forward::{
    protocol::{
        Allocation, Creation, Extent, Finish, Kind, Node, OpenFlags, RenameMode, SetAttr, XattrMode,
    },
    server::ServerConfig,
};
use rustix::io::Errno;

fn finish(data: &[u8]) -> Finish {
    let hash = Some(*blake3::hash(data).as_bytes());
    Finish { size: data.len() as u64, hash, replace: true, ..Finish::default() }
}

#[test]
fn names() {
    let (server, _) = server(ServerConfig::default());
    for address in server.addresses() {
        let client = Client::new(&address);
        let (calls, id) = (&client.calls, client.session);
        let root = client.wait(calls.stat(id, Node::Path(Vec::new()), true)).unwrap();
        assert_eq!(root.kind, Kind::Directory);
        client.wait(calls.make_dir(id, b"d".to_vec(), Creation::default())).unwrap();
        let again = client.wait(calls.make_dir(id, b"/".to_vec(), Creation::default()));
        assert_eq!(again.unwrap_err().errno(), Errno::EXIST);
        let data = pattern(1000, 1);
        for number in 0..250 {
            let path = format!("f{number:03}").into_bytes();
            let put = client.wait(calls.put(id, path, data.clone().into(), finish(&data)));
            assert_eq!(put.unwrap().size, 1000);
        }
        let (directory, page) = client.wait(calls.open_dir(id, Vec::new())).unwrap();
        let mut names: Vec<_> = page.entries.into_iter().map(|entry| entry.name).collect();
        assert!(page.more && directory != 0);
        loop {
            let page = client.wait(calls.read_dir(id, directory)).unwrap();
            names.extend(page.entries.into_iter().map(|entry| entry.name));
            if !page.more {
                break;
            }
        }
        client.wait(calls.close(id, directory)).unwrap();
        assert!(
            names
                .iter()
                .eq((0..250).map(|n| format!("f{n:03}").into_bytes()).collect::<Vec<_>>().iter())
        );
        let (from, to) = (b"f000".to_vec(), b"g".to_vec());
        client.wait(calls.rename(id, from.clone(), to.clone(), RenameMode::Replace)).unwrap();
        assert_eq!(client.wait(calls.get(id, from, 4096)).unwrap_err().errno(), Errno::NOENT);
        let (attr, got) = client.wait(calls.get(id, to.clone(), 4096)).unwrap();
        assert_eq!((attr.size, &got.unwrap()[..]), (1000, &data[..]));
        assert_eq!(client.wait(calls.get(id, to.clone(), 999)).unwrap().1, None);
        let (attr, none) = client.wait(calls.get(id, Vec::new(), 999)).unwrap();
        assert_eq!((attr.kind, none), (Kind::Directory, None));
        let set = SetAttr { size: Some(10), ..SetAttr::default() };
        assert_eq!(
            client.wait(calls.set_attr(id, Node::Path(to.clone()), set, true)).unwrap().size,
            10
        );
        client.wait(calls.remove(id, to, false)).unwrap();
        for number in 1..250 {
            client.wait(calls.remove(id, format!("f{number:03}").into_bytes(), false)).unwrap();
        }
        client.wait(calls.remove(id, b"d".to_vec(), true)).unwrap();
        assert_eq!(client.wait(calls.stat_fs(id)).unwrap().name_max, 255);
        let refused = client.wait(calls.read_link(id, b"x".to_vec()));
        assert_eq!(refused.unwrap_err().errno(), Errno::OPNOTSUPP);
        let refused =
            client.wait(calls.make_node(id, b"x".to_vec(), Kind::CharDevice, Creation::default()));
        assert_eq!(refused.unwrap_err().errno(), Errno::PERM);
        let refused =
            client.wait(calls.rename(id, b"../x".to_vec(), b"y".to_vec(), RenameMode::Keep));
        assert_eq!(refused.unwrap_err().errno(), Errno::XDEV);
    }
    let status = server.status();
    assert!(status.total.calls > 1500 && status.total.failed == 3 * 5, "{:?}", status.total);
    assert_eq!((status.memory[0], status.queued), (0, 0));
}

#[test]
fn data() {
    let (server, memory) = server(ServerConfig::default());
    for address in server.addresses() {
        let client = Client::new(&address);
        let (calls, id) = (&client.calls, client.session);
        let file = client.open("file");
        let data = pattern((9 << 20) + 12345, 7);
        assert_eq!(client.write_from(file, 100, data.clone()).unwrap(), 100 + data.len() as u64);
        assert_eq!(client.wait(calls.write(id, file, 3, b"abc".to_vec().into())).unwrap(), 6);
        let stored = memory.contents("file").unwrap();
        assert!(stored[100..] == data && &stored[..7] == b"\0\0\0abc\0");

        let read = client.wait(calls.read(id, file, 2, 5)).unwrap();
        assert_eq!(&read[..], b"\0abc\0");
        let long = client.wait(calls.read(id, file, 100, u64::MAX)).unwrap();
        assert!(long[..] == data[..client.welcome.inline as usize]);
        assert!(client.wait(calls.read(id, file, 1 << 40, 10)).unwrap().is_empty());
        // More room than there is.
        let region = Region::zeroed(12 << 20);
        assert_eq!(client.read_into(file, 90, region.whole()).unwrap(), 10 + data.len() as u64);
        let came = region.slice(10, data.len()).unwrap().to_vec();
        assert!(came == data);
        assert_eq!(client.read_into(file, 1 << 40, region.whole()).unwrap(), 0);

        let range = Extent { offset: 100, len: 64 << 20 };
        let hashes = client.wait(calls.hashes(id, file, range, 1 << 16)).unwrap();
        assert!(
            hashes.iter().eq(data
                .chunks(1 << 16)
                .map(blake3::hash)
                .map(Into::<[u8; 32]>::into)
                .collect::<Vec<_>>()
                .iter())
        );
        let extents = client.wait(calls.extents(id, file, 50)).unwrap();
        assert_eq!(extents, [Extent { offset: 50, len: stored.len() as u64 - 50 }]);
        client.wait(calls.sync(id, file, true)).unwrap();
        let refused = client.wait(calls.allocate(id, file, Allocation::Punch, range));
        assert_eq!(refused.unwrap_err().errno(), Errno::OPNOTSUPP);
        let refused = client.wait(calls.set_xattr(
            id,
            Node::File(file),
            b"user.x".to_vec(),
            b"1".to_vec().into(),
            XattrMode::Any,
        ));
        assert_eq!(refused.unwrap_err().errno(), Errno::OPNOTSUPP);
        client.wait(calls.close(id, file)).unwrap();
        assert_eq!(client.wait(calls.sync(id, file, true)).unwrap_err().errno(), Errno::BADF);

        let both = client.open_as("file", OpenFlags::WRITE.with(OpenFlags::APPEND));
        let more = pattern(3 << 20, 9);
        let end = (stored.len() + more.len()) as u64;
        assert_eq!(client.write_from(both, 0, more.clone()).unwrap(), end);
        assert_eq!(client.wait(calls.write(id, both, 0, b"end".to_vec().into())).unwrap(), end + 3);
        let longer = memory.contents("file").unwrap();
        assert!(longer[stored.len()..longer.len() - 3] == more && longer.ends_with(b"end"));
        assert_eq!(client.wait(calls.read(id, both, 0, 1)).unwrap_err().errno(), Errno::BADF);
        client.wait(calls.remove(id, b"file".to_vec(), false)).unwrap();
        client.wait(calls.goodbye(id)).unwrap();
    }
    assert_eq!(server.status().lost, 0);
}

#[test]
fn staging() {
    let (server, memory) = server(ServerConfig::default());
    for address in server.addresses() {
        let (one, two) = (Client::new(&address), Client::new(&address));
        let (calls, path) = (&one.calls, b"whole".to_vec());
        let data = pattern(3_000_000, 3);
        let stage = |client: &Client| {
            client.wait(client.calls.stage(client.session, [7; 16], path.clone()))
        };
        // A session's files are closed some time after its farewell, also after that of the
        // last address.
        let stage_when_free = |client: &Client| {
            let mut staged = None;
            crate::common::until("the key is free", || {
                staged = stage(client).ok();
                staged.is_some()
            });
            staged.unwrap()
        };
        let (file, _) = stage_when_free(&one);
        assert_eq!(stage(&two).unwrap_err().errno(), Errno::BUSY);
        assert_eq!(stage(&one).unwrap_err().errno(), Errno::BUSY);
        one.write_from(file, 0, data[..2_000_000].to_vec()).unwrap();
        one.wait(calls.goodbye(one.session)).unwrap();
        assert!(memory.contents("whole").is_none());
        let (file, attr) = stage_when_free(&two);
        assert_eq!(attr.size, 2_000_000);
        let (calls, id) = (&two.calls, two.session);
        two.write_from(file, 2_000_000, data[2_000_000..2_999_999].to_vec()).unwrap();
        let publish = || two.wait(calls.publish(id, file, path.clone(), finish(&data)));
        assert_eq!(publish().unwrap_err().errno(), Errno::BADMSG);
        two.wait(calls.write(id, file, 2_999_990, data[2_999_990..].to_vec().into())).unwrap();
        let small = Finish { size: 5, ..finish(&data) };
        let refused = two.wait(calls.publish(id, file, path.clone(), small));
        assert_eq!(refused.unwrap_err().errno(), Errno::INVAL);
        assert_eq!(publish().unwrap().size, 3_000_000);
        assert!(memory.contents("whole").unwrap() == data);
        assert_eq!(publish().unwrap_err().errno(), Errno::BADF);
        let (file, attr) = stage(&two).unwrap();
        assert_eq!(attr.size, 0);
        two.wait(calls.discard(id, file)).unwrap();
        assert!(stage(&two).is_ok());
        two.wait(calls.remove(id, path.clone(), false)).unwrap();
        two.wait(calls.goodbye(id)).unwrap();
    }
}
