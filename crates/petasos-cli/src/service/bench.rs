//! The service behind `petasos ping` and `petasos bench`.

use petasos::{
    BulkHandle, Context, RemoteBulk, Wire,
    fabric::{Region, Slice},
    service,
};
use std::cell::{Cell, RefCell};

/// Bytes of the small message of the measurements.
pub(crate) const MESSAGE: usize = crate::limits::MESSAGE_BYTES;

/// The most that one transfer moves: what the server keeps memory for.
const LARGEST_TRANSFER: u64 = 1 << 30;

/// Transfers that a server takes at a time: each has memory of its own.
const MOST_TRANSFERS: usize = 4;

/// Which way bulk data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub(crate) enum Way {
    /// From the caller's memory to the server.
    Pull,
    /// From the server to the caller's memory.
    Push,
}

/// Answers, and moves data.
#[service(name = "petasos.Bench")]
pub(crate) trait Bench {
    /// Does nothing.
    async fn null(&self);
    /// Gives a small message back.
    async fn small(&self, message: [u8; MESSAGE]) -> [u8; MESSAGE];
    /// Gives a message of any size back.
    async fn echo(&self, message: Vec<u8>) -> Vec<u8>;
    /// Moves all of the caller's memory, so many times, between it and memory that the server
    /// keeps: what was pulled is pushed.
    async fn transfer(
        &self,
        context: Context,
        memory: BulkHandle,
        way: Way,
        times: u32,
    ) -> Result<(), String>;
}

/// The implementation.
#[derive(Default)]
pub(crate) struct Measured {
    /// Memory used again, so that the system is not measured giving it.
    spare: RefCell<Vec<Region>>,
    moving: Cell<usize>,
}

/// A transfer that counts; ends also when the caller goes away.
struct Moving<'a> {
    bench: &'a Measured,
    memory: Region,
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        self.bench.moving.set(self.bench.moving.get() - 1);
        let mut spare = self.bench.spare.borrow_mut();
        spare.push(self.memory.clone());
        // The largest serves all.
        spare.sort_by_key(|region| std::cmp::Reverse(region.len()));
        spare.truncate(1);
    }
}

impl Measured {
    fn begin(&self, len: usize) -> Result<Moving<'_>, String> {
        if self.moving.get() >= MOST_TRANSFERS {
            return Err(format!("{MOST_TRANSFERS} transfers are under way, try again later"));
        }
        self.moving.set(self.moving.get() + 1);
        let spare = self.spare.borrow_mut().pop().filter(|region| region.len() >= len);
        let memory = spare.unwrap_or_else(|| Region::zeroed(len));
        Ok(Moving { bench: self, memory })
    }
}

async fn go(remote: &RemoteBulk, way: Way, local: &Slice) -> Result<(), petasos::BulkError> {
    match way {
        Way::Pull => remote.pull_into(0, local.clone()).await?,
        Way::Push => remote.push(0, local.clone()).await?,
    };
    Ok(())
}

impl Bench for Measured {
    async fn null(&self) {}

    async fn small(&self, message: [u8; MESSAGE]) -> [u8; MESSAGE] {
        message
    }

    async fn echo(&self, message: Vec<u8>) -> Vec<u8> {
        message
    }

    async fn transfer(
        &self,
        context: Context,
        memory: BulkHandle,
        way: Way,
        times: u32,
    ) -> Result<(), String> {
        let remote = context.engine().open(&memory).map_err(|e| e.to_string())?;
        let len = remote.len();
        if len > LARGEST_TRANSFER {
            return Err(format!("{len} bytes are more than the {LARGEST_TRANSFER} of a transfer"));
        }
        let moving = self.begin(len as usize)?;
        let local = moving.memory.slice(0, len as usize).ok_or("no memory of that size")?;
        for _ in 0..times {
            go(&remote, way, &local).await.map_err(|e| e.to_string())?;
        }
        Ok(())
    }
}
