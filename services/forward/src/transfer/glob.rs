//! Patterns of names.

/// A pattern: `*` and `?` stop at slashes, `**` does not, `[a-z]` and `[!a-z]` are one byte, and a
/// backslash takes the next byte as it is.
///
/// Without a slash it is about a name, wherever it is; with one, about the path within the tree.
/// A slash at its end means directories alone.
///
/// ```
/// use petasos_forward::transfer::Glob;
///
/// assert!(Glob::new(b"*.o").matches(b"src/main.o", false), "a name, wherever it is");
/// assert!(!Glob::new(b"/src/*").matches(b"src/net/tcp.c", false), "`*` stops at a slash");
/// assert!(Glob::new(b"src/**/*.c").matches(b"src/net/tcp.c", false));
/// assert!(!Glob::new(b"build/").matches(b"build", false), "directories alone");
/// ```
#[derive(Clone, Debug)]
pub struct Glob {
    pattern: Vec<u8>,
    whole: bool,
    directories: bool,
}

impl Glob {
    /// Any bytes are a pattern.
    #[must_use]
    pub fn new(pattern: &[u8]) -> Glob {
        let (pattern, directories) = match pattern.strip_suffix(b"/") {
            Some(pattern) => (pattern, true),
            None => (pattern, false),
        };
        let whole = pattern.contains(&b'/');
        let pattern = pattern.strip_prefix(b"/").unwrap_or(pattern).to_vec();
        Glob { pattern, whole, directories }
    }

    /// Whether this path within a tree matches.
    #[must_use]
    pub fn matches(&self, path: &[u8], directory: bool) -> bool {
        if self.directories && !directory {
            return false;
        }
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        fits(&self.pattern, if self.whole { path } else { name })
    }
}

/// Matching with one place to return to for `*`, and one for `**`: no more than the product of the
/// lengths.
fn fits(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // Where the pattern goes on after a star, and up to where it took the text.
    let (mut star, mut stars) = (None, None);
    loop {
        if pattern[p..].starts_with(b"**") {
            p += 2;
            // `**/` is any directories, also none.
            let none = pattern.get(p) == Some(&b'/') && (t == 0 || text[t - 1] == b'/');
            stars = Some((p, t));
            star = None;
            if none {
                p += 1;
            }
            continue;
        }
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            star = Some((p, t));
            continue;
        }
        let matched = match text.get(t) {
            None if p == pattern.len() => return true,
            None => None,
            Some(byte) => one(&pattern[p..], *byte),
        };
        if let Some(len) = matched {
            (p, t) = (p + len, t + 1);
            continue;
        }
        match (star, stars) {
            (Some((after, from)), _) if text.get(from).is_some_and(|byte| *byte != b'/') => {
                star = Some((after, from + 1));
                (p, t) = (after, from + 1);
            }
            (_, Some((after, from))) if from < text.len() => {
                stars = Some((after, from + 1));
                star = None;
                (p, t) = (after, from + 1);
            }
            _ => return false,
        }
    }
}

/// How much of the pattern matches this one byte.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match *pattern.first()? {
        b'?' => (byte != b'/').then_some(1),
        b'[' => match class(pattern, byte) {
            Some((len, within)) => (within && byte != b'/').then_some(len),
            None => (byte == b'[').then_some(1),
        },
        b'\\' if pattern.len() > 1 => (pattern[1] == byte).then_some(2),
        plain => (plain == byte).then_some(1),
    }
}

/// The length of a class, and whether the byte is in it; `None` where it does not end.
fn class(pattern: &[u8], byte: u8) -> Option<(usize, bool)> {
    let not = matches!(pattern.get(1), Some(b'!' | b'^'));
    let first = 1 + usize::from(not);
    let mut at = first;
    let mut within = false;
    loop {
        let low = *pattern.get(at)?;
        if low == b']' && at > first {
            return Some((at + 1, within != not));
        }
        match (pattern.get(at + 1), pattern.get(at + 2)) {
            (Some(b'-'), Some(&high)) if high != b']' => {
                within |= (low..=high).contains(&byte);
                at += 3;
            }
            _ => {
                within |= low == byte;
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_matches() {
        for (pattern, path, directory, expected) in [
            ("*.o", "a/b/c.o", false, true),
            ("*.o", "a/b.o/c", false, false),
            ("a*b?", "aXXbY", false, true),
            ("[a-c]x", "bx", false, true),
            ("[!a-c]x", "bx", false, false),
            ("[]]", "]", false, true),
            ("[x", "[x", false, true),
            ("\\*", "*", false, true),
            ("\\*", "a", false, false),
            ("target/", "a/target", true, true),
            ("target/", "a/target", false, false),
            ("/a/*", "a/b", false, true),
            ("/a/*", "a/b/c", false, false),
            ("/a", "a", false, true),
            ("/a", "b/a", false, false),
            ("a/**/z", "a/z", false, true),
            ("a/**/z", "a/b/c/z", false, true),
            ("a/**", "a/b/c", false, true),
            ("**/x*y/z", "a/xy/b/xy/z", false, true),
            ("**/x*y/z", "a/xy/b/xy/w", false, false),
            ("", "a", false, false),
        ] {
            let glob = Glob::new(pattern.as_bytes());
            assert_eq!(glob.matches(path.as_bytes(), directory), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn a_mean_pattern_ends() {
        let glob = Glob::new(b"*a*a*a*a*a*a*a*a*a*b");
        assert!(!glob.matches(&[b'a'; 255], false));
    }
}
