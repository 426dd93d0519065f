//! Data made for a first try: a tree with something of everything.

use crate::{
    exit::{Failure, Outcome},
    noise::Noise,
};
use std::{
    fs::{self, Permissions},
    io::Write,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

/// Sizes of small files: none, one, around a page, around a message.
const SMALL: [usize; 8] = [0, 1, 4095, 4096, 4097, 65_535, 65_537, 300_000];

/// Fills the directory with about `bytes` of data that does not repeat.
pub(super) fn make(path: &Path, bytes: u64) -> Outcome {
    let seed = getrandom::u64().map_err(Failure::system("the system's random source"))?;
    let mut noise = Noise::from_seed(seed);
    let mut left = bytes;
    let mut file = |name: &str, len: u64| {
        let path = path.join(name);
        let failed = |e| Failure::file("writing", &path, &e);
        let mut file = fs::File::create_new(&path).map_err(failed)?;
        let mut buffer = vec![0; 1 << 20];
        let mut to_go = len;
        while to_go > 0 {
            let part = to_go.min(buffer.len() as u64) as usize;
            noise.fill(&mut buffer[..part]);
            file.write_all(&buffer[..part]).map_err(failed)?;
            to_go -= part as u64;
        }
        Ok::<_, Failure>(path)
    };
    let directory = |name: &str| {
        let path = path.join(name);
        fs::create_dir(&path).map_err(|e| Failure::file("making", &path, &e))
    };
    directory("small")?;
    directory("empty")?;
    for (at, len) in SMALL.iter().enumerate() {
        let len = (*len as u64).min(left / 4);
        file(&format!("small/{at}"), len)?;
        left -= len;
    }
    let tool = file("small/executable", 0)?;
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, Permissions::from_mode(mode))
            .map_err(|e| Failure::file("setting the mode of", path, &e))
    };
    mode(&tool, 0o755)?;
    let data = file("data", left)?;
    mode(&data, 0o640)?;
    let link = path.join("link");
    symlink("small/executable", &link).map_err(|e| Failure::file("making", &link, &e))?;
    Ok(())
}
