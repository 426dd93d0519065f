//! Mounting where a mount is that does not answer, or whose server does not.

use super::{At, can_mount, is_mounted, process_of_mount, threads};
use crate::{
    common::{Place, Ran, wait},
    export::Export,
};
use rustix::mount::MountFlags;
use std::{
    ffi::CString,
    fs::{self, File},
    io::{Read, Write},
    os::fd::AsRawFd,
    path::Path,
    process::Stdio,
    sync::mpsc,
    thread,
    time::Duration,
};

/// Mounts what takes the kernel's requests and answers none of them but the first, which begins the
/// mount. Gives the number of each kind of request that comes.
fn mount_silent(at: &Path) -> mpsc::Receiver<u32> {
    let mut device = File::options().read(true).write(true).open("/dev/fuse").unwrap();
    let data = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
    let data = CString::new(data).unwrap();
    rustix::mount::mount("silent", at, "fuse.petasos", MountFlags::empty(), &*data).unwrap();
    let (report, requests) = mpsc::channel();
    thread::spawn(move || {
        let mut request = vec![0; 1 << 20];
        // Until it is unmounted.
        while device.read(&mut request).is_ok() {
            let kind = u32::from_ne_bytes(request[4..8].try_into().unwrap());
            if kind == INIT {
                // The length, no error, and the number of the request; then the version.
                let mut answer = [&80_u32.to_ne_bytes()[..], &[0; 4], &request[8..16]].concat();
                answer.extend([7_u32, 31].map(u32::to_ne_bytes).concat());
                answer.resize(80, 0);
                device.write_all(&answer).unwrap();
            }
            let _ = report.send(kind);
        }
    });
    requests
}

/// The first request of a mount.
const INIT: u32 = 26;

#[test]
fn a_mount_that_does_not_answer_holds_no_command_up() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let at = At(place.path("at"));
    fs::create_dir(&at.0).unwrap();
    let requests = mount_silent(&at.0);
    assert_eq!(requests.recv().unwrap(), INIT);
    let mut command = place.command(&["forward", "mount", "shm://petasos-none", "at"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut command = command.spawn().unwrap();
    // The kernel waits for that one whatever happens to the process that asks.
    requests.recv_timeout(Duration::from_secs(20)).unwrap();
    wait(&mut command, Duration::from_secs(20));
    Ran::of(&command.wait_with_output().unwrap()).assert(1).says("does not answer");
    assert!(is_mounted(&at.0), "its process may only be slow");
}

#[test]
fn a_mount_that_waits_for_its_server_is_not_dead() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let mut export = Export::start(&place, "shm", &[]);
    fs::write(place.path("exp/file"), "contents").unwrap();
    let at = At(place.path("at"));
    fs::create_dir(&at.0).unwrap();
    export.run(&place, &["mount", "@", "at"]).assert(0);
    let process = process_of_mount(&export, &place, &[]);
    export.kill();
    assert!(fs::read_dir(&at.0).is_err());
    export.run(&place, &["mount", "@", "at"]).assert(1);
    assert!(is_mounted(&at.0) && !threads(process).is_empty());
    let _again = Export::at(&place, &export.url, &[]);
    crate::common::until("a mount whose server is there again", || {
        (fs::read(at.0.join("file")).ok()? == b"contents").then_some(())
    });
}
