//! Work for an engine from other threads.

use crate::inner::Inner;
use petasos_fabric::driver::Kick;
use std::{
    mem,
    rc::Rc,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Work for an engine from another thread.
pub(crate) type Command = Box<dyn FnOnce(&Rc<Inner>) + Send>;

/// The queue of commands; closed once the engine has ended.
pub(crate) struct Commands {
    queue: Mutex<Option<Vec<Command>>>,
    waker: Arc<Kick>,
}

impl Commands {
    pub(crate) fn new(waker: Arc<Kick>) -> Arc<Commands> {
        Arc::new(Commands { queue: Mutex::new(Some(Vec::new())), waker })
    }

    fn queue(&self) -> MutexGuard<'_, Option<Vec<Command>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a command and wakes the engine. False if `most` commands wait already. The command is
    /// dropped if the engine has ended.
    pub(crate) fn push(&self, command: Command, most: usize) -> bool {
        let mut queue = self.queue();
        let Some(commands) = queue.as_mut() else { return true };
        if commands.len() >= most {
            return false;
        }
        commands.push(command);
        drop(queue);
        self.waker.ring();
        true
    }

    /// Takes all commands that wait.
    pub(crate) fn take(&self) -> Vec<Command> {
        self.queue().as_mut().map(mem::take).unwrap_or_default()
    }

    /// Takes no more commands, and drops those that wait.
    pub(crate) fn close(&self) {
        let commands = self.queue().take();
        // Their code may run, now that the lock is free.
        drop(commands);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.queue().is_none()
    }
}
