//! The target's side of long data that the transport moves by itself: from memory that the
//! initiator lent, or to it (`initiator::lend`).

use crate::{
    Failure, Memory,
    matching::Matched,
    state::State,
    transfer::{Serving, Transfer},
};
use petasos_fabric::{Level, Operation as FabricOperation, Region, Remote, RemoteSpan};
use smallvec::smallvec;

impl State {
    /// Moves the data of a request that came with the key to its memory.
    pub(super) fn move_lent(&mut self, serving: Serving, key: &[u8]) {
        let Matched { entry, offset, len, .. } = serving.matched;
        if len == 0 {
            self.finish(&serving, Ok(()));
            return self.acknowledge(&serving);
        }
        let Some(remote) = self.network.import(serving.peer, key, len) else {
            self.status.garbage += 1;
            tracing::warn!(peer = ?serving.peer, "a key was not understood");
            self.finish(&serving, Err(Failure::Undelivered));
            return self.refuse(serving.peer, serving.number, Failure::Undelivered);
        };
        let memory = &self.portals.matching.at(entry).spec.memory;
        let writes = serving.arrival.request.writes();
        let most = self.network.max_pieces(serving.peer);
        let pieces = memory.slices(offset, len).filter(|pieces| pieces.len() <= most);
        let (local, scratch) = match pieces {
            Some(pieces) => (pieces, None),
            None => {
                let whole = Region::zeroed(len as usize).whole();
                let scratch = Memory::from(whole.clone());
                if !writes {
                    let mut bytes = vec![0; len as usize];
                    if let Err(failure) = memory.try_read(offset, &mut bytes) {
                        self.network.release(remote);
                        self.finish(&serving, Err(failure));
                        return self.refuse(serving.peer, serving.number, failure);
                    }
                    scratch.write(0, &bytes);
                }
                (smallvec![whole], Some(scratch))
            }
        };
        self.reserve_event(&serving);
        let token = self.network.transfer(Transfer::Lent { serving, remote, scratch });
        let spans = smallvec![RemoteSpan { offset: 0, len }];
        self.network.submit(match writes {
            true => FabricOperation::Get { token, remote, local, spans },
            false => {
                let (level, event) = (Level::Visible, None);
                FabricOperation::Put { token, remote, local, spans, level, event }
            }
        });
    }

    /// The data of a lent operation was moved, or will not be.
    pub(crate) fn moved_lent(
        &mut self,
        serving: &Serving,
        remote: Remote,
        scratch: Option<Memory>,
        result: Result<(), Failure>,
    ) {
        self.network.release(remote);
        let scratch = scratch.filter(|_| serving.arrival.request.writes());
        self.fetched_data(serving, scratch, result);
    }
}
