//! What the two sides of a connection say about closing it, and how far that has come.

use petasos_fabric::two_sided::header::{PREFIX, VERSION};

/// How far a connection is on the way to be closed as idle, see [`crate::endpoint::idle`]; or why nothing
/// else goes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closing {
    No,
    /// We have asked, and send nothing until there is an answer.
    Asked,
    /// We have agreed, and send nothing more.
    Agreed,
    /// It is not closed: the peer's claim is being verified, see [`crate::endpoint::claims`].
    Doubted,
}

/// The kind of packets that say something about closing: none of the engine's.
const KIND: u8 = 0xf0;

/// What is said about closing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Note {
    /// May it be closed?
    Ask = 0,
    /// It may.
    Agree = 1,
    /// It is needed.
    Refuse = 2,
}

impl Note {
    pub(crate) fn encode(self) -> [u8; PREFIX] {
        [KIND, VERSION, self as u8, 0, 0, 0, 0, 0]
    }

    pub(crate) fn decode(prefix: [u8; PREFIX]) -> Option<Note> {
        [Note::Ask, Note::Agree, Note::Refuse].into_iter().find(|note| note.encode() == prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use petasos_fabric::two_sided::header;

    #[test]
    fn notes_are_no_packets() {
        for note in [Note::Ask, Note::Agree, Note::Refuse] {
            assert_eq!(Note::decode(note.encode()), Some(note));
            assert!(header::frame(note.encode()).is_err());
            assert_eq!(header::message_len(note.encode()), None);
        }
        let mut wrong = Note::Ask.encode();
        wrong[7] = 1;
        assert_eq!(Note::decode(wrong), None);
        assert_eq!(Note::decode(header::message_header(5)), None);
    }
}
