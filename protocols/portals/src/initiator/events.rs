//! The events of an operation at its initiator, what is counted of it, and the release of its
//! descriptors.

use super::SENT;
use crate::{
    Completed, Count, Counts, Descriptor, Event, Failure, Handle, Part, Quiet,
    descriptor::Bound,
    events::Events,
    outstanding::{Awaited, Details, Ending},
    state::State,
};

impl State {
    /// Raises the event of an operation's data having left, or never leaving.
    #[inline(never)]
    pub(super) fn raise_send(&mut self, details: &Details, result: Result<(), Failure>) {
        let Some(data) = details.data else { return };
        let completed = Completed { result, ..details.completed(data) };
        let acknowledged = details.awaited() == Awaited::Ack;
        self.raise_completed(completed, Ending::Sent { acknowledged });
    }

    /// The reply to an operation begins to come: so many bytes, from that offset.
    pub(super) fn raise_reply_start(&mut self, details: &Details, part: Part, moved: (u64, u64)) {
        let Some(bound) = self.descriptors.get(part.descriptor) else { return };
        if !bound.spec.quiet.has(Quiet::START) {
            self.raise_begin(details, part, moved, Event::ReplyStart);
        }
    }

    #[inline(never)]
    pub(super) fn raise_begin(
        &mut self,
        details: &Details,
        part: Part,
        (len, offset): (u64, u64),
        event: fn(Completed) -> Event,
    ) {
        let Some(bound) = self.descriptors.get(part.descriptor) else { return };
        let (queue, left) = (bound.spec.queue, bound.left(&self.portals.matching));
        let (attached, user_data) = (bound.attached(), bound.user_data(details.user_data()));
        let all = details.completed(part);
        let completed = Completed { len, offset, left, attached, user_data, ..all };
        self.events.push(queue, event(completed));
    }

    /// Counts the end of a part of an operation, and raises its event unless that is not wanted. An
    /// answer spends what the descriptor has reserved for it.
    #[inline(always)]
    pub(super) fn raise_completed(&mut self, completed: Completed, ending: Ending) {
        let State { descriptors, portals, events, .. } = self;
        let Some(bound) = descriptors.get_mut(completed.descriptor) else { return };
        if bound.has_threshold() && ending.is_answer() {
            bound.spend(&mut portals.matching);
        }
        let spec = &bound.spec;
        // Whether it is counted; what suppresses the event of a success; and what suppresses it in
        // any case.
        let (counted, quiet, mute) = match ending {
            // A failure is counted once, whichever of the two is counted.
            Ending::Sent { acknowledged: true } if completed.result.is_err() => {
                let counted = spec.counts.has(Counts::SEND) || spec.counts.has(Counts::ACK);
                (counted, SENT, Quiet::COMMUNICATION)
            }
            Ending::Sent { .. } => (spec.counts.has(Counts::SEND), SENT, Quiet::COMMUNICATION),
            Ending::Acknowledged | Ending::Counted => {
                (spec.counts.has(Counts::ACK), Quiet::SUCCESS, Quiet::NONE)
            }
            Ending::Unasked => (false, Quiet::SUCCESS, Quiet::NONE),
            Ending::Replied => {
                (spec.counts.has(Counts::REPLY), Quiet::SUCCESS, Quiet::COMMUNICATION)
            }
        };
        let quiet = if completed.result.is_ok() { quiet.with(mute) } else { mute };
        let silent = spec.quiet.any(quiet);
        let (queue, counter) = (spec.queue, spec.counter.filter(|_| counted));
        let count = Count::of_operation(spec.counts, completed.len, completed.result);
        if !silent && ending.has_event() {
            let (left, attached) = (bound.left(&portals.matching), bound.attached());
            let user_data = bound.user_data(completed.user_data);
            let completed = Completed { left, attached, user_data, ..completed };
            events.push(queue, ending.event(completed));
        }
        events.count(counter, count);
    }

    /// An operation has ended, and does not need its descriptors any more.
    #[inline(always)]
    pub(super) fn release_descriptors(&mut self, details: &Details) {
        if let Some(part) = details.data {
            self.release_descriptor(part.descriptor, details.link);
        }
        if let Some(part) = details.result {
            self.release_descriptor(part.descriptor, details.link);
        }
    }

    #[inline(always)]
    fn release_descriptor(&mut self, descriptor: Handle<Descriptor>, link: u64) {
        let State { descriptors, portals, events, .. } = self;
        let Some(bound) = descriptors.get_mut(descriptor) else { return };
        bound.end_one();
        if let Some((entry, _)) = bound.attached() {
            descriptors.remove(descriptor);
            portals.let_go(entry, link, events);
        } else if bound.is_used_up() {
            // A descriptor of Portals 3 goes by itself.
            if let Some(bound) = descriptors.remove(descriptor) {
                raise_released(descriptor, &bound, link, events);
            }
        }
    }
}

#[inline(never)]
fn raise_released(descriptor: Handle<Descriptor>, bound: &Bound, link: u64, events: &mut Events) {
    if !bound.spec.quiet.has(Quiet::UNLINK) {
        let user_data = bound.user_data(0);
        events.push(bound.spec.queue, Event::Released { descriptor, user_data, link });
    }
}
