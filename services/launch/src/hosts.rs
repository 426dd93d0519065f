//! Lists of hosts, as people write them.

use petasos_pmix::server::{MAX_NODES, expand_word, split};

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
#[error(
    "`{text}` is no host: write it as NAME or NAME:SLOTS, several as node[1-3] or node[01-12,20]:SLOTS, or in a file \
     NAME slots=SLOTS"
)]
pub struct HostError {
    /// What was found.
    pub text: String,
}

/// The hosts of one word, whose brackets stand for several numbers.
fn hosts(text: &str, names: &str, slots: Option<&str>) -> Result<Vec<Host>, HostError> {
    let wrong = || HostError { text: text.trim().to_owned() };
    // A name goes on the command line of the start command: it must not look like an option.
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._@".contains(c);
    let is_name =
        |name: &String| !name.is_empty() && !name.starts_with('-') && name.chars().all(plain);
    let slots = slots.map(str::parse).transpose().map_err(|_| wrong())?;
    let names = expand_word(names).filter(|names| names.iter().all(is_name)).ok_or_else(wrong)?;
    Ok(names.into_iter().map(|name| Host { name, slots }).collect())
}

/// Hosts between commas: `a,b:4`, and several at once as Slurm writes them: `node[1-3,07-10]:4`.
///
/// # Errors
/// If one of them cannot be a host, or there are more than 131,072.
pub fn parse_hosts(text: &str) -> Result<Vec<Host>, HostError> {
    let wrong = || HostError { text: text.trim().to_owned() };
    let mut all = Vec::new();
    for word in split(text).ok_or_else(wrong)? {
        all.extend(match word.split_once(':') {
            Some((names, slots)) => hosts(word, names, Some(slots))?,
            None => hosts(word, word, None)?,
        });
        if all.len() > MAX_NODES {
            return Err(wrong());
        }
    }
    Ok(all)
}

/// A file with a host on each line, as `a`, `a:4` or `a slots=4`, or several as in [`parse_hosts`];
/// `#` begins a comment.
///
/// # Errors
/// If one of them cannot be a host, or there are more than 131,072.
pub fn parse_hostfile(text: &str) -> Result<Vec<Host>, HostError> {
    let mut all = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else { continue };
        match words.next() {
            None => all.extend(parse_hosts(first)?),
            Some(word) => {
                let slots = word.strip_prefix("slots=").unwrap_or("?");
                all.extend(hosts(line, first, Some(slots))?);
            }
        }
        if all.len() > MAX_NODES {
            return Err(HostError { text: first.to_owned() });
        }
    }
    Ok(all)
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

    #[test]
    fn several_hosts_at_once() {
        let names = |hosts: Result<Vec<Host>, HostError>| -> Vec<String> {
            let shown = |host: Host| match host.slots {
                Some(slots) => format!("{}:{slots}", host.name),
                None => host.name,
            };
            hosts.unwrap().into_iter().map(shown).collect()
        };
        assert_eq!(names(parse_hosts("node[1-3]")), ["node1", "node2", "node3"]);
        let list = "a, u@n[08-10,7].x:2,b:3";
        assert_eq!(
            names(parse_hosts(list)),
            ["a", "u@n08.x:2", "u@n09.x:2", "u@n10.x:2", "u@n7.x:2", "b:3"]
        );
        let file = "node[1-2] slots=4\nr[0-1]n[1,3]\n";
        let expected = ["node1:4", "node2:4", "r0n1", "r0n3", "r1n1", "r1n3"];
        assert_eq!(names(parse_hostfile(file)), expected);
        for bad in ["n[1-", "n[", "n]", "n[]", "n[3-1]", "n[a-b]", "n[1-3", "[::1]", "n[1-999999]"]
        {
            assert!(parse_hosts(bad).is_err(), "{bad:?} was taken");
            assert!(parse_hostfile(&format!("{bad} slots=1")).is_err(), "{bad:?} was taken");
        }
        let many = "n[1-100000],m[1-100000]";
        assert!(parse_hosts(many).is_err() && parse_hostfile(&many.replace(',', "\n")).is_err());
    }
}
