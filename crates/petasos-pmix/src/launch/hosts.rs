//! Lists of hosts, as people write them.

/// A host, and how many ranks it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its name, for the command that starts programs there.
    pub name: String,
    /// How many ranks; `None`: as many as this machine has cores.
    pub slots: Option<u32>,
}

/// What is wrong with a list of hosts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no host: write it as NAME, NAME:SLOTS, or in a file NAME slots=SLOTS")]
pub struct HostError {
    /// What was found.
    pub text: String,
}

fn host(text: &str, name: &str, slots: Option<&str>) -> Result<Host, HostError> {
    let wrong = || HostError { text: text.trim().to_owned() };
    // A name goes on the command line of the start command: it must not look like an option.
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._@[]".contains(c);
    if name.is_empty() || name.starts_with('-') || !name.chars().all(plain) {
        return Err(wrong());
    }
    let slots = slots.map(str::parse).transpose().map_err(|_| wrong())?;
    Ok(Host { name: name.to_owned(), slots })
}

/// Hosts between commas: `a,b:4`.
///
/// # Errors
/// If one of them cannot be a host.
pub fn parse_hosts(text: &str) -> Result<Vec<Host>, HostError> {
    let one = |word: &str| match word.split_once(':') {
        Some((name, slots)) => host(word, name, Some(slots)),
        None => host(word, word, None),
    };
    text.split(',').map(str::trim).map(one).collect()
}

/// A file with a host on each line, as `a`, `a:4` or `a slots=4`; `#` begins a comment.
///
/// # Errors
/// If one of them cannot be a host.
pub fn parse_hostfile(text: &str) -> Result<Vec<Host>, HostError> {
    let mut hosts = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else { continue };
        match words.next() {
            None => hosts.extend(parse_hosts(first)?),
            Some(word) => {
                let slots = word.strip_prefix("slots=").unwrap_or("?");
                hosts.push(host(line, first, Some(slots))?);
            }
        }
    }
    Ok(hosts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, slots: Option<u32>) -> Host {
        Host { name: name.to_owned(), slots }
    }

    #[test]
    fn lists_of_hosts() {
        let expected = vec![of("a", None), of("b.c", Some(4)), of("u@10.0.0.1", Some(1))];
        assert_eq!(parse_hosts("a,b.c:4, u@10.0.0.1:1").unwrap(), expected);
        let file = "# ours\na\n\nb.c slots=4   # many\nu@10.0.0.1:1\n";
        assert_eq!(parse_hostfile(file).unwrap(), expected);
        for bad in ["", "a,,b", "-oProxyCommand=x", "a b", "a:x", "a:-1", "$(x)"] {
            assert!(parse_hosts(bad).is_err(), "{bad:?} was taken");
        }
        assert!(parse_hostfile("a cores=4").is_err());
    }
}
