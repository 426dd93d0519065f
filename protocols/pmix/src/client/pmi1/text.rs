//! Bytes as text without spaces, and the nodes of the ranks.

use crate::Node;

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Six bits a character (RFC 4648, section 5), without padding.
pub(super) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let all = three.iter().fold(0u32, |all, byte| all << 8 | u32::from(*byte));
        let all = all << (8 * (3 - three.len()));
        for at in 0..=three.len() {
            text.push(char::from(DIGITS[(all >> (18 - 6 * at)) as usize & 63]));
        }
    }
    text
}

/// `None` if the text is not such an encoding.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 3);
    for four in text.as_bytes().chunks(4) {
        let mut all = 0u32;
        for at in 0..4 {
            let digit = match four.get(at) {
                Some(b'A'..=b'Z') => four[at] - b'A',
                Some(b'a'..=b'z') => four[at] - b'a' + 26,
                Some(b'0'..=b'9') => four[at] - b'0' + 52,
                Some(b'-') => 62,
                Some(b'_') => 63,
                Some(_) => return None,
                None => 0,
            };
            all = all << 6 | u32::from(digit);
        }
        if four.len() == 1 {
            return None;
        }
        bytes.extend_from_slice(&all.to_be_bytes()[1..four.len()]);
    }
    Some(bytes)
}

/// Pieces of at most `len` characters, all ASCII.
pub(super) fn pieces(text: &str, len: usize) -> Vec<&str> {
    (0..text.len()).step_by(len).map(|at| &text[at..text.len().min(at + len)]).collect()
}

/// The node of each rank: blocks of (first node, how many, ranks on each), repeated until all ranks
/// have one. Without a mapping all ranks are on the same node.
pub(super) fn nodes_of_ranks(mapping: Option<&str>, size: u32) -> Option<Vec<Node>> {
    let Some(mapping) = mapping.filter(|text| !text.is_empty()) else {
        return Some(vec![Node(0); size as usize]);
    };
    let inner = mapping.trim().strip_prefix("(vector")?.strip_suffix(')')?;
    let mut blocks = Vec::new();
    for block in inner.split('(').skip(1) {
        let block = block.trim_end_matches([',', ' ']).strip_suffix(')')?;
        let numbers: Option<Vec<u32>> = block.split(',').map(|n| n.trim().parse().ok()).collect();
        let [first, count, each] = numbers?[..] else { return None };
        first.checked_add(count).filter(|last| *last <= 1 << 20)?;
        if count > 0 && each > 0 {
            blocks.push((first, count, each));
        }
    }
    if blocks.is_empty() {
        return None;
    }
    let mut nodes = Vec::with_capacity(size as usize);
    loop {
        for (first, count, each) in &blocks {
            for node in *first..first + count {
                for _ in 0..*each {
                    if nodes.len() == size as usize {
                        return Some(nodes);
                    }
                    nodes.push(Node(node));
                }
            }
        }
        if nodes.len() == size as usize {
            return Some(nodes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive_as_text() {
        for len in 0..200 {
            let bytes: Vec<u8> = (0..len).map(|at| (at * 37 + len) as u8).collect();
            let text = encode(&bytes);
            assert_eq!(decode(&text).unwrap(), bytes);
            assert_eq!(pieces(&text, 7).concat(), text);
        }
        for text in ["A", "AA=A", "a b", "ABCDE"] {
            assert_eq!(decode(text), None, "{text}");
        }
        assert_eq!((encode(b"\xff\xfe"), encode(b"")), ("__4".to_owned(), String::new()));
    }

    #[test]
    fn ranks_are_placed_as_the_mapping_says() {
        let of = |mapping: &str, size| {
            let nodes = nodes_of_ranks(Some(mapping), size)?;
            Some(nodes.iter().map(|node| node.0).collect::<Vec<_>>())
        };
        assert_eq!(of("(vector,(0,1,1))", 3), Some(vec![0, 0, 0]));
        assert_eq!(of("(vector,(0,2,2),(2,1,1))", 5), Some(vec![0, 0, 1, 1, 2]));
        assert_eq!(of("(vector,(0,2,1))", 5), Some(vec![0, 1, 0, 1, 0]));
        for nonsense in [
            "",
            "(vector)",
            "(vector,(0,0,1))",
            "(vector,(0,1))",
            "x",
            "(vector,(9,9,9",
            "(vector,(4000000000,4000000000,1))",
        ] {
            assert_eq!(of(nonsense, 2).is_none(), !nonsense.is_empty(), "{nonsense}");
        }
        assert_eq!(nodes_of_ranks(None, 2), Some(vec![Node(0); 2]));
    }
}
