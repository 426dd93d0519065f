//! The initiator's side, in the order in which an operation passes through it: it is started, and
//! its data leaves (`start`); its answer comes (`answer`); its events are raised (`events`). `lend`
//! is for long data that the transport moves by itself.
//!
//! A successful operation raises each of its events once. After a put whose data could not be sent
//! no acknowledgement is waited for. So every operation that was accepted ends.

mod answer;
mod events;
mod lend;
mod start;

use crate::Quiet;

/// The events that are not wanted if one of a put's leaving is not.
const SENT: Quiet = Quiet::SEND.with(Quiet::SUCCESS);
