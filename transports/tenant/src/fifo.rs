//! Packets that wait, in order, in one piece of memory: no allocation for each.

/// Bytes before each: which it is, and its length.
const FRAME: usize = 5;
/// Room beyond this is given back when the queue is empty.
const KEPT: usize = 64 << 10;

/// A queue of packets, each with a mark.
#[derive(Debug, Default)]
pub struct Fifo {
    bytes: Vec<u8>,
    /// Where the first one begins.
    head: usize,
    count: usize,
}

impl Fifo {
    /// Appends the concatenation of `parts`.
    pub fn push(&mut self, mark: u8, parts: &[&[u8]]) {
        if self.head > KEPT && self.head * 2 > self.bytes.len() {
            self.bytes.drain(..self.head);
            self.head = 0;
        }
        let len: usize = parts.iter().map(|part| part.len()).sum();
        self.bytes.push(mark);
        self.bytes.extend_from_slice(&(len as u32).to_le_bytes());
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
        self.count += 1;
    }

    /// The first one.
    #[must_use]
    pub fn front(&self) -> Option<(u8, &[u8])> {
        let (frame, rest) = self.bytes[self.head..].split_first_chunk::<FRAME>()?;
        let [mark, len @ ..] = *frame;
        Some((mark, &rest[..u32::from_le_bytes(len) as usize]))
    }

    /// Removes the first one.
    pub fn pop(&mut self) {
        let Some((_, first)) = self.front() else { return };
        self.head += FRAME + first.len();
        self.count -= 1;
        if self.count == 0 {
            self.clear();
        }
    }

    /// Removes all.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(KEPT);
        (self.head, self.count) = (0, 0);
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    #[test]
    fn it_is_a_queue() {
        let (mut fifo, mut model) = (Fifo::default(), VecDeque::new());
        for step in 0_usize..4000 {
            let packet = vec![step as u8; step * 7919 % 3000];
            if step % 7 < 4 {
                let (one, two) = packet.split_at(packet.len() / 2);
                fifo.push(step as u8, &[one, two]);
                model.push_back((step as u8, packet));
            } else {
                let first = fifo.front().map(|(mark, bytes)| (mark, bytes.to_vec()));
                assert_eq!(first, model.pop_front());
                fifo.pop();
            }
            assert_eq!((fifo.len(), fifo.is_empty()), (model.len(), model.is_empty()));
        }
        fifo.clear();
        assert!(fifo.front().is_none() && fifo.bytes.capacity() <= KEPT);
    }
}
