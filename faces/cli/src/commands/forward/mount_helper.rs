//! `mount.petasos`: under this name the executable is what mount(8) starts for the type `petasos`,
//! with `SOURCE DIRECTORY [-sfnv] [-o OPTIONS] [-t TYPE]`; it does as `petasos forward mount`.

use std::{ffi::OsString, os::unix::ffi::OsStrExt, path::Path};

/// Names by which mount(8) starts it.
const NAMES: [&[u8]; 2] = [b"mount.petasos", b"mount.fuse.petasos"];

/// Options of `petasos forward mount` with a value.
const VALUES: [&str; 8] = [
    "secret",
    "cache",
    "attr_timeout",
    "negative_timeout",
    "timeout",
    "write_behind",
    "read_ahead",
    "log_file",
];

/// What mount(8) and others keep in its table for themselves.
fn is_for_others(option: &str) -> bool {
    const WORDS: [&str; 13] = [
        "defaults",
        "auto",
        "noauto",
        "user",
        "nouser",
        "users",
        "owner",
        "group",
        "_netdev",
        "nofail",
        "relatime",
        "norelatime",
        "strictatime",
    ];
    option.is_empty()
        || WORDS.contains(&option)
        || ["x-", "X-", "comment=", "user="].iter().any(|begin| option.starts_with(begin))
}

/// The arguments of the command, if it was started by one of these names: with `Err` what is wrong
/// with those that came.
pub(crate) fn arguments(
    mut given: impl Iterator<Item = OsString>,
) -> Option<Result<Vec<OsString>, String>> {
    let program = given.next()?;
    let name = Path::new(&program).file_name()?.as_bytes();
    NAMES.contains(&name).then(|| translated(given))
}

fn translated(given: impl Iterator<Item = OsString>) -> Result<Vec<OsString>, String> {
    let mut given = given.peekable();
    let (mut words, mut options) = (Vec::new(), String::new());
    let (mut sloppy, mut fake) = (false, false);
    while let Some(word) = given.next() {
        let text = word.to_string_lossy().into_owned();
        let Some(flags) = text.strip_prefix('-').filter(|flags| !flags.is_empty()) else {
            words.push(word);
            continue;
        };
        let mut letters = flags.chars();
        while let Some(letter) = letters.next() {
            match letter {
                's' => sloppy = true,
                'f' => fake = true,
                'n' | 'v' | 'w' => {}
                'r' => options += ",ro",
                'o' | 't' => {
                    let rest: String = letters.by_ref().collect();
                    let value = match rest.is_empty() {
                        false => rest,
                        true => {
                            let value = given.next().ok_or(format!("-{letter} needs a value"))?;
                            value.into_string().map_err(|_| "options must be UTF-8".to_owned())?
                        }
                    };
                    if letter == 'o' {
                        options = format!("{options},{value}");
                    }
                }
                letter => return Err(format!("there is no option -{letter}")),
            }
        }
    }
    let [source, directory] = &words[..] else {
        return Err("usage: mount.petasos URL[/PATH] DIRECTORY [-sfnv] [-o OPTIONS]".to_owned());
    };
    if fake {
        return Ok(Vec::new());
    }
    let mut words: Vec<OsString> = ["petasos", "forward", "mount"].map(OsString::from).into();
    for option in options.split(',').filter(|option| !is_for_others(option)) {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        match option {
            "ro" => words.push("--read-only".into()),
            "rw" => {}
            "allow_other" => words.push("--allow-other".into()),
            _ if VALUES.contains(&name) => {
                words.push(format!("--{}={value}", name.replace('_', "-")).into());
            }
            // What the mount does not know it says itself; unless that is to be passed over.
            _ if sloppy && !is_known(option) => {}
            _ => words.extend(["-o".into(), option.into()]),
        }
    }
    words.extend(["--".into(), source.clone(), directory.clone()]);
    Ok(words)
}

fn is_known(option: &str) -> bool {
    petasos_forward::mount::MountOptions::default().system_option(option).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[&str]) -> Option<Result<Vec<OsString>, String>> {
        arguments(words.iter().map(OsString::from))
    }

    #[test]
    fn what_the_system_says_is_understood() {
        assert!(of(&["/usr/bin/petasos", "forward"]).is_none());
        let options = "rw,secret=/etc/key,attr_timeout=5s,noexec,_netdev,x-systemd.automount";
        let words = of(&["/sbin/mount.petasos", "tcp://n:1/d", "/mnt", "-v", "-o", options]);
        let expected = "petasos forward mount --secret=/etc/key --attr-timeout=5s -o noexec -- \
                        tcp://n:1/d /mnt";
        let expected: Vec<OsString> = expected.split(' ').map(OsString::from).collect();
        assert_eq!(words, Some(Ok(expected)));
        let words = of(&["mount.fuse.petasos", "shm://x", "/mnt", "-so", "ro,strange"]).unwrap();
        let expected = ["petasos", "forward", "mount", "--read-only", "--", "shm://x", "/mnt"];
        assert_eq!(words.unwrap(), expected);
        assert_eq!(of(&["mount.petasos", "shm://x", "/mnt", "-f"]), Some(Ok(Vec::new())));
        assert!(of(&["mount.petasos", "/mnt"]).unwrap().is_err());
        assert!(of(&["mount.petasos", "a", "b", "-o"]).unwrap().is_err());
    }
}
