//! Sets of small numbers as the kernel writes them: `0-3,8`.

use std::fmt::Write;

/// The largest number of a processor or a node that is taken.
const LARGEST: u32 = 1 << 16;

/// The numbers in such a text, in order. Invalid parts are left out.
pub(super) fn parse(text: &str) -> Vec<u32> {
    let mut all = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) else { continue };
        if last < LARGEST {
            all.extend(first..=last);
        }
    }
    all.sort_unstable();
    all.dedup();
    all
}

/// Such a text of numbers that are in order.
pub(super) fn text(numbers: impl IntoIterator<Item = u32>) -> String {
    let mut text = String::new();
    let mut numbers = numbers.into_iter().peekable();
    while let Some(first) = numbers.next() {
        let mut last = first;
        while let Some(next) = numbers.next_if(|next| last.checked_add(1) == Some(*next)) {
            last = next;
        }
        let comma = if text.is_empty() { "" } else { "," };
        // Writing to a string does not fail.
        let _ = match first == last {
            true => write!(text, "{comma}{first}"),
            false => write!(text, "{comma}{first}-{last}"),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        for (read, numbers, written) in [
            ("0-3,8\n", &[0, 1, 2, 3, 8][..], "0-3,8"),
            ("8,0-1,1-2", &[0, 1, 2, 8], "0-2,8"),
            ("", &[], ""),
            ("\n", &[], ""),
            ("x,5-,7-6,4", &[4], "4"),
            ("0-4294967295,1", &[1], "1"),
        ] {
            assert_eq!(parse(read), numbers, "{read:?}");
            assert_eq!(text(parse(read)), written, "{read:?}");
        }
    }
}
