//! What `petasos tune` wrote for a device is used where the program sets nothing.

mod common;

use common::{join, message, net, open, until};
use petasos_channel::{Config, Thresholds};
use petasos_fabric::{Endpoint, Event};
use petasos_testing::{again, role};
use std::time::Duration;

/// A message of 10,000 bytes goes by short packets if the file says so; and no exclusive channel is
/// asked for.
#[test]
fn channels_choose() {
    if role().is_none() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "simdev.channel.mp = 12000\nsimdev.channel.exclusive = never\n";
        std::fs::write(file.path(), text).unwrap();
        let path = file.path().to_str().unwrap();
        let mut process = again("channels_choose", "tuned").env("PETASOS_TUNING", path).start();
        assert!(process.wait(Duration::from_secs(60)).success());
        return;
    }
    for (thresholds, short, given) in [(None, true, 0), (Some(Thresholds::default()), false, 1)] {
        let mut config = Config::default();
        config.thresholds = thresholds;
        config.limits.max_inject = config.limits.max_message;
        let net = net(1);
        let (mut a, mut b) = (open(&net, "a", &config), open(&net, "b", &config));
        let (ab, _) = join(&net, &mut a, &mut b);
        let mut one = |len| {
            let mut sent = false;
            until(&net, &mut [&mut a, &mut b], "a message", |ends, events| {
                sent = sent || ends[0].inject(ab, &[&message(0, 1, 0, len)]).is_ok();
                events[1].iter().any(|event| matches!(event, Event::Message { .. }))
            });
            (a.counters(), b.counters())
        };
        let (counters, _) = one(10_000);
        assert_eq!(counters.shared == 0, short, "{counters:?}");
        let last = (0..200).map(|_| one(100).1).last().unwrap();
        assert_eq!(last.given, given, "{last:?}");
    }
}
