//! Accesses from and into memory that the library does not get: that only its program keeps, or
//! that is a device's.
//!
//! The library may go on with an access after its peer is lost, and not every library ever says
//! when it is done. Memory of a region is held until then. A [raw](Slice::raw) slice cannot be, and
//! so the library works on copies, a window of the access at a time: those are held in its place,
//! and the access can end at once. To memory of a device there is no pointer.

use petasos_fabric::{Buffer, Cursor, Region, RemoteSpan, Slice};

/// The length of a window, and of its longest piece.
const WINDOW: usize = 1 << 20;
const PIECE: usize = WINDOW / 4;

/// The part of an access that the library works on now.
#[derive(Debug, Default)]
pub(crate) struct Window {
    /// Where in the access it begins.
    begin: Cursor,
    copy: Option<Region>,
}

impl Window {
    /// A window, if some of this memory is such that there has to be one.
    pub(crate) fn of(local: &[Slice]) -> Option<Window> {
        let is_copied = |piece: &Slice| piece.is_raw() || piece.device().is_some();
        local.iter().any(is_copied).then(Window::default)
    }

    /// How long the next piece may be, when the access was handed out up to `at`: 0 until what is
    /// under way is complete.
    pub(crate) fn room(&self, at: &Cursor) -> usize {
        (WINDOW - self.filled(at)).min(PIECE)
    }

    fn filled(&self, at: &Cursor) -> usize {
        (at.moved() - self.begin.moved()) as usize
    }

    /// The copy of a piece that follows `at`, in an access of `total` bytes: filled if it is for a
    /// put. The same again for the same place.
    pub(crate) fn piece(
        &mut self,
        at: &Cursor,
        local: &Slice,
        total: u64,
        put: bool,
    ) -> Option<Slice> {
        let (filled, left) = (self.filled(at), total - self.begin.moved());
        let len = usize::try_from(left).map_or(WINDOW, |left| left.min(WINDOW));
        let copy = self.copy.get_or_insert_with(|| Region::from_buffer(Buffer::scratch(len)));
        let piece = copy.slice(filled, local.len())?;
        if put {
            local.copy_to(&piece);
        }
        Some(piece)
    }

    /// All up to `at` is complete: what was got goes to where it belongs, and the next window
    /// begins there.
    pub(crate) fn end(&mut self, at: &Cursor, local: &[Slice], spans: &[RemoteSpan], got: bool) {
        let mut from = std::mem::replace(&mut self.begin, *at);
        let Some(copy) = self.copy.take().filter(|_| got) else { return };
        let mut offset = 0;
        while let Some(stretch) = from.take(local, spans, (at.moved() - from.moved()) as usize) {
            if let Some((part, into)) = copy.slice(offset, stretch.len).zip(stretch.local()) {
                part.copy_to(&into);
            }
            offset += stretch.len;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A get of several pieces and windows, in the order in which the library's part is called.
    #[test]
    fn what_was_got_comes_to_its_place_window_by_window() {
        let total = WINDOW + 2 * PIECE + 17;
        let into = [Region::zeroed(100).whole(), Region::zeroed(total - 100).whole()];
        let spans = [
            RemoteSpan { offset: 0, len: WINDOW as u64 - 5 },
            RemoteSpan { offset: 1 << 30, len: (total - WINDOW + 5) as u64 },
        ];
        let (mut window, mut at, mut windows) = (Window::default(), Cursor::default(), 0);
        while at.moved() < total as u64 {
            let room = window.room(&at);
            let mut after = at;
            let Some(stretch) = after.take(&into, &spans, room) else {
                window.end(&at, &into, &spans, true);
                windows += 1;
                continue;
            };
            let local = stretch.local().unwrap();
            let piece = window.piece(&at, &local, total as u64, false).unwrap();
            assert!(piece.len() == stretch.len && piece.len() <= PIECE);
            piece.write(0, &vec![stretch.len as u8 ^ windows; stretch.len]);
            assert!(local.to_vec().iter().all(|byte| *byte == 0), "not before it is complete");
            at = after;
        }
        window.end(&at, &into, &spans, true);
        assert_eq!(windows, 1);
        let all = [into[0].to_vec(), into[1].to_vec()].concat();
        let places = [100, PIECE, PIECE, PIECE, PIECE - 105, 5].map(|len| (len, len as u8));
        let mut begin = 0;
        for (len, byte) in places {
            assert!(all[begin..begin + len].iter().all(|found| *found == byte), "at {begin}");
            begin += len;
        }
        assert_eq!(begin, WINDOW);
        let rest = [PIECE, PIECE, 17].map(|len| (len, len as u8 ^ 1));
        for (len, byte) in rest {
            assert!(all[begin..begin + len].iter().all(|found| *found == byte), "at {begin}");
            begin += len;
        }
        assert_eq!(begin, total);
    }

    #[test]
    fn what_was_not_got_stays() {
        let into = [Slice::from(vec![7; 100])];
        let spans = [RemoteSpan { offset: 0, len: 100 }];
        let (mut window, mut at) = (Window::default(), Cursor::default());
        let piece = window.piece(&at, &into[0], 100, false).unwrap();
        piece.write(0, &[1; 100]);
        at.skip(&into, &spans, 100);
        window.end(&at, &into, &spans, false);
        assert_eq!(into[0].to_vec(), [7; 100]);
    }

    #[test]
    fn puts_are_copied_when_they_are_posted() {
        let from = [Slice::from(vec![7; 100])];
        let mut window = Window::default();
        let piece = window.piece(&Cursor::default(), &from[0], 100, true).unwrap();
        from[0].write(0, &[8; 100]);
        assert_eq!(piece.to_vec(), [7; 100]);
        assert!(Window::of(&from).is_none());
    }
}
