//! Memory that both sides have: what changes on one is changed on the other.
//!
//! Each side keeps the content on which they last agreed, and finds exactly the bytes that have
//! changed since, so that two sides that change different bytes of one memory do not undo each
//! other's changes. If both have changed the same byte, the endpoint's side counts: a put that
//! lands where it must not is seen.

use super::protocol::Patch;
use petasos_fabric::Region;

/// Bytes that are compared at once.
const BLOCK: usize = 4096;

/// The bytes of `region` that are not as in `agreed`, which is as `region` then.
pub(super) fn changes(region: &Region, agreed: &mut [u8]) -> Vec<Patch> {
    let mut found = Vec::new();
    let mut now = [0; BLOCK];
    for (number, agreed) in agreed.chunks_mut(BLOCK).enumerate() {
        let (start, now) = (number * BLOCK, &mut now[..agreed.len()]);
        region.read(start, now);
        if now == agreed {
            continue;
        }
        let mut at = 0;
        while let Some(begin) = (at..now.len()).find(|&i| now[i] != agreed[i]) {
            let end = (begin..now.len()).find(|&i| now[i] == agreed[i]).unwrap_or(now.len());
            add(&mut found, (start + begin) as u64, &now[begin..end]);
            at = end;
        }
        agreed.copy_from_slice(now);
    }
    found
}

/// Adds bytes, to the last patch where they go on with it.
fn add(patches: &mut Vec<Patch>, at: u64, new: &[u8]) {
    let uniform = new.len() >= 64 && new.iter().all(|byte| *byte == new[0]);
    match patches.last_mut() {
        Some(Patch::Fill { offset, len, byte })
            if uniform && *byte == new[0] && *offset + *len == at =>
        {
            *len += new.len() as u64;
        }
        _ if uniform => {
            patches.push(Patch::Fill { offset: at, len: new.len() as u64, byte: new[0] });
        }
        Some(Patch::Bytes { offset, bytes }) if *offset + bytes.len() as u64 == at => {
            bytes.extend_from_slice(new);
        }
        _ => patches.push(Patch::Bytes { offset: at, bytes: new.to_vec() }),
    }
}

/// Makes these changes in `region` and in `agreed`, which are of one length. Fails on a patch that
/// does not fit, and on memory that must not be written.
pub(super) fn apply(region: &Region, agreed: &mut [u8], patches: &[Patch]) -> Result<(), String> {
    for patch in patches {
        let (offset, len) = match patch {
            Patch::Bytes { offset, bytes } => (*offset, bytes.len() as u64),
            Patch::Fill { offset, len, .. } => (*offset, *len),
        };
        let end = offset.checked_add(len).filter(|end| *end <= agreed.len() as u64);
        let end = end.ok_or_else(|| format!("{offset}+{len} of {} bytes changed", agreed.len()))?;
        let (begin, end) = (offset as usize, end as usize);
        match patch {
            Patch::Bytes { bytes, .. } => agreed[begin..end].copy_from_slice(bytes),
            Patch::Fill { byte, .. } => agreed[begin..end].fill(*byte),
        }
        if !region.is_writable() {
            return Err(format!("read-only memory was written, from byte {offset} on"));
        }
        region.write(begin, &agreed[begin..end]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    #[test]
    fn changes_of_both_sides_meet() {
        let len = 3 * BLOCK + 100;
        let (here, there) = (Region::zeroed(len), Region::zeroed(len));
        let (mut of_here, mut of_there) = (vec![0; len], vec![0; len]);
        let mut model = vec![0; len];
        let mut random = Random::new(9);
        for _ in 0..200 {
            // The two keep to bytes of their own, which lie among each other's.
            for (odd, region) in [(false, &here), (true, &there)] {
                let (begin, count) = (random.below(len), random.below(3000));
                let fill = random.percent(50).then(|| random.draw() as u8);
                for at in (begin..len.min(begin + count)).filter(|at| (at / 300 % 2 == 1) == odd) {
                    model[at] = fill.unwrap_or_else(|| random.draw() as u8);
                    region.write(at, &model[at..=at]);
                }
            }
            let patches = changes(&there, &mut of_there);
            apply(&here, &mut of_here, &patches).unwrap();
            let patches = changes(&here, &mut of_here);
            apply(&there, &mut of_there, &patches).unwrap();
            assert!(here.to_vec() == model && there.to_vec() == model);
            assert!(of_here == model && of_there == model);
        }
    }

    #[test]
    fn what_is_uniform_is_short() {
        let region = Region::from_vec(vec![7; 1 << 20]);
        let patches = changes(&region, &mut vec![0; 1 << 20]);
        assert_eq!(patches, [Patch::Fill { offset: 0, len: 1 << 20, byte: 7 }]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let region = Region::zeroed(10);
        for (offset, len) in [(10, 1), (0, 11), (u64::MAX, 2)] {
            let patch = Patch::Fill { offset, len, byte: 1 };
            assert!(apply(&region, &mut [0; 10], &[patch]).is_err());
        }
        let view = Region::view(&region.whole()).unwrap();
        let patch = Patch::Bytes { offset: 0, bytes: vec![1] };
        assert!(apply(&view, &mut [0; 10], &[patch]).is_err());
        assert_eq!(region.to_vec(), [0; 10]);
    }
}
