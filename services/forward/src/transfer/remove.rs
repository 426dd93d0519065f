//! Whole trees, removed.

use crate::{
    RelPath,
    client::{Remote, RemoteError},
    protocol::Kind,
};
use futures_util::{StreamExt, TryStreamExt, stream};
use rustix::io::Errno;

/// Removes a directory with all that is in it, `parallel` calls at a time. What vanishes meanwhile
/// is as good as removed. Ends at the first error; dropping the future leaves what was not removed
/// yet.
///
/// # Errors
/// The first one, as [`Remote::stat`].
pub async fn remove_tree(
    remote: &Remote,
    path: &RelPath,
    parallel: usize,
) -> Result<(), RemoteError> {
    // Directories below come after those above, and are removed in the opposite order.
    let mut directories = vec![path.clone()];
    let mut looked = 0;
    while looked < directories.len() {
        let directory = directories[looked].clone();
        looked += 1;
        let mut files = Vec::new();
        for entry in remote.read_dir(&directory).await? {
            let path = directory.join(&entry.name).map_err(|error| RemoteError::Refused {
                operation: "removing from",
                subject: directory.to_string(),
                error: error.into(),
            })?;
            match entry.attr.kind {
                Kind::Directory => directories.push(path),
                _ => files.push(path),
            }
        }
        stream::iter(files)
            .map(|path| async move { gone(remote.remove_file(&path).await) })
            .buffer_unordered(parallel.max(1))
            .try_collect::<()>()
            .await?;
    }
    while let Some(directory) = directories.pop() {
        gone(remote.remove_dir(&directory).await)?;
    }
    Ok(())
}

fn gone(removed: Result<(), RemoteError>) -> Result<(), RemoteError> {
    match removed {
        Err(error) if error.errno() == Errno::NOENT => Ok(()),
        removed => removed,
    }
}
