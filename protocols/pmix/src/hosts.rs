//! Names of hosts: of this one, and in lists as Slurm writes them.

/// More nodes than any machine has.
pub const MAX_NODES: usize = 1 << 17;
/// The name of this host.
#[must_use]
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The hosts of the step that this process is a task of, by what Slurm calls them.
pub(crate) fn hosts_of_step() -> Option<Vec<String>> {
    expand(&std::env::var("SLURM_STEP_NODELIST").ok()?)
}

/// The names of a list such as `a,n[1-3,07-10]x,r[0-1]n[0-1]`.
#[must_use]
pub fn expand(list: &str) -> Option<Vec<String>> {
    let mut names = Vec::new();
    for word in split(list)? {
        names.extend(product(word)?);
        if names.len() > MAX_NODES {
            return None;
        }
    }
    // They go on a command line: none may look like an option, or be more than a name.
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    let is_name =
        |name: &String| !name.is_empty() && !name.starts_with('-') && name.chars().all(plain);
    names.iter().all(is_name).then_some(names)
}

/// The words of a list, between commas that are in no brackets.
#[must_use]
pub fn split(list: &str) -> Option<Vec<&str>> {
    let mut words = Vec::new();
    let (mut depth, mut from) = (0, 0);
    for (at, letter) in list.char_indices().chain([(list.len(), ',')]) {
        match letter {
            '[' => depth += 1,
            ']' => depth -= 1,
            ',' if depth == 0 => {
                words.push(list[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
        if !(0..=1).contains(&depth) {
            return None;
        }
    }
    (depth == 0).then_some(words)
}

/// The names of one word, whose brackets each stand for several numbers: `n[1-3,07-10]x`.
#[must_use]
pub fn product(word: &str) -> Option<Vec<String>> {
    let Some((before, rest)) = word.split_once('[') else { return Some(vec![word.to_owned()]) };
    let (numbers, after) = rest.split_once(']')?;
    let numbers = range(numbers)?;
    let after = product(after)?;
    if numbers.len().saturating_mul(after.len()) > MAX_NODES {
        return None;
    }
    let name = |number: &String| {
        let number = number.clone();
        after.iter().map(move |after| format!("{before}{number}{after}"))
    };
    Some(numbers.iter().flat_map(name).collect())
}

/// Numbers such as `1-3,07-10`, each as wide as the first of its range.
fn range(text: &str) -> Option<Vec<String>> {
    let mut numbers = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let width = first.len();
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || (last - first) as usize + numbers.len() >= MAX_NODES {
            return None;
        }
        numbers.extend((first..=last).map(|number| format!("{number:0width$}")));
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_nodes() {
        let of = |list: &str| expand(list).map(|names| names.join(" "));
        assert_eq!(of("a").unwrap(), "a");
        assert_eq!(of("a,n[1-3,07-10],b-x.y").unwrap(), "a n1 n2 n3 n07 n08 n09 n10 b-x.y");
        assert_eq!(of("r[0-1]n[8,9]x").unwrap(), "r0n8x r0n9x r1n8x r1n9x");
        assert_eq!(expand("n[1-100000]").unwrap().len(), 100_000);
        for bad in [
            "",
            "a,",
            "n[1-",
            "n]1[",
            "n[[1]]",
            "n[a]",
            "n[2-1]",
            "-w",
            "a b",
            "n[0-4000000000]",
            "n[0-99999]x[0-99999]",
        ] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }
}
