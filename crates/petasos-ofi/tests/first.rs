use petasos_fabric::*;
use petasos_ofi::*;
use std::time::*;
fn run(url: &str) {
    let a = &Address::parse(url).unwrap();
    let mut x = Ofi::open(a, Config::default()).unwrap();
    let mut y = Ofi::open(a, Config::default()).unwrap();
    println!("{x:?} {y:?}");
    let p = x.resolve(&y.address().clone(), Duration::from_secs(3)).unwrap();
    let c = Clock::start();
    let mut e = (vec![], vec![]);
    let begin = Instant::now();
    let mut sent = false;
    while e.1.len() < 2 {
        x.progress(c.now(), 64, &mut e.0);
        y.progress(c.now(), 64, &mut e.1);
        if !sent && !e.0.is_empty() {
            x.inject(p, &[b"hello"]).unwrap();
            sent = true;
        }
        assert!(
            begin.elapsed() < Duration::from_secs(5),
            "{e:?} {:?} {:?}",
            x.counters(),
            y.counters()
        );
    }
    println!("{e:?} {:?}", begin.elapsed());
}
#[test]
fn tcp() {
    run("ofi+tcp://127.0.0.1:0")
}
#[test]
fn shm() {
    run("ofi+shm://*")
}
