//! Choices, cut off the front of the input. When it is used up, all choices are zero.

/// The rest of the input.
#[derive(Clone, Copy, Debug)]
pub struct Cut<'a>(pub &'a [u8]);

impl<'a> Cut<'a> {
    /// Whether it is used up.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    /// At most `len` bytes.
    pub fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        head
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        let bytes = self.bytes(N);
        out[..bytes.len()].copy_from_slice(bytes);
        out
    }

    /// A byte.
    pub fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    /// A small number, to choose with.
    pub fn upto(&mut self, limit: usize) -> usize {
        usize::from(self.u8()) % limit.max(1)
    }

    /// Two bytes.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    /// Four bytes.
    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    /// Eight bytes.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// Bytes, as many as a first byte says.
    pub fn short(&mut self) -> &'a [u8] {
        let len = self.u8();
        self.bytes(usize::from(len))
    }
}
