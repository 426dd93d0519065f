//! Completions that the next pass reports.

use petasos_fabric::{Completion, Done, Event, Streak, Token};
use std::collections::VecDeque;

/// Completions, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Completions {
    /// Those of operations that were carried out when they were submitted: two words each, as an
    /// event is many, which would be stored by parts and read as a whole at once.
    brief: VecDeque<(Token, Brief)>,
    /// The others, all later than those.
    events: VecDeque<Event>,
    /// How many there are: each pass asks.
    count: usize,
    /// Those that were polled since the last pass.
    streak: Streak,
}

/// The result of an operation that went well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Brief {
    Sent,
    Put,
    Got,
}

impl Brief {
    fn done(self) -> Done {
        match self {
            Brief::Sent => Done::Sent,
            Brief::Put => Done::Put,
            Brief::Got => Done::Got,
        }
    }
}

impl Completions {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn push(&mut self, event: Event) {
        self.count += 1;
        self.events.push_back(event);
    }

    /// The operation with this token went well.
    #[inline]
    pub(crate) fn done(&mut self, token: Token, brief: Brief) {
        self.count += 1;
        match self.events.is_empty() {
            true => self.brief.push_back((token, brief)),
            false => self.events.push_back(Event::Done { token, result: Ok(brief.done()) }),
        }
    }

    /// The next one, unless another event comes before it, or a pass is due.
    #[inline]
    pub(crate) fn poll(&mut self) -> Option<Completion> {
        if !self.streak.goes_on() {
            return None;
        }
        let completion = match self.brief.pop_front() {
            Some((token, Brief::Sent)) => Completion::sent(token),
            Some((token, Brief::Put)) => Completion::put(token),
            Some((token, Brief::Got)) => Completion::got(token),
            None => self.poll_event()?,
        };
        self.streak.count();
        self.count -= 1;
        Some(completion)
    }

    #[inline(never)]
    fn poll_event(&mut self) -> Option<Completion> {
        match self.events.front()? {
            Event::Done { .. } => Completion::from_event(self.events.pop_front()?).ok(),
            _ => None,
        }
    }

    /// A pass.
    #[inline]
    pub(crate) fn begin_pass(&mut self) {
        self.streak.end();
    }

    /// Moves up to so many to `events`. True if there was one.
    #[inline]
    pub(crate) fn take(&mut self, most: usize, events: &mut Vec<Event>) -> bool {
        let mut left = most;
        // One by one, as mostly there is one: to drain takes longer to begin and to end.
        while left > 0
            && let Some((token, brief)) = self.brief.pop_front()
        {
            left -= 1;
            events.push(Event::Done { token, result: Ok(brief.done()) });
        }
        while left > 0
            && let Some(event) = self.events.pop_front()
        {
            left -= 1;
            events.push(event);
        }
        self.count -= most - left;
        left < most
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use petasos_fabric::{Peer, Status};

    #[test]
    fn they_are_polled_up_to_another_event_and_to_the_next_pass() {
        let mut completions = Completions::default();
        completions.done(Token(1), Brief::Put);
        completions.push(Event::Done { token: Token(2), result: Ok(Done::Flushed) });
        completions.push(Event::Writable { peer: Peer { index: 0, generation: 0 } });
        completions.done(Token(3), Brief::Sent);
        let mut poll = || completions.poll().map(|done| (done.token().0, done.status()));
        assert_eq!([poll(), poll()], [Some((1, Status::Put)), Some((2, Status::Flushed))]);
        assert_eq!([poll(), poll()], [None, None]);
        assert_eq!(completions.len(), 2);
        let mut events = Vec::new();
        assert!(completions.take(1, &mut events));
        assert_eq!(completions.poll().map(|done| done.token()), Some(Token(3)));
        assert!(completions.poll().is_none() && completions.is_empty());

        completions.begin_pass();
        (0..2 * Streak::MOST).for_each(|n| completions.done(Token(n.into()), Brief::Got));
        let polled = std::iter::from_fn(|| completions.poll()).count();
        assert_eq!(polled, Streak::MOST as usize);
        completions.begin_pass();
        assert_eq!(completions.poll().map(|done| done.token().0), Some(Streak::MOST.into()));
    }

    #[test]
    fn they_are_taken_in_order_and_no_more_than_wanted() {
        let mut completions = Completions::default();
        completions.done(Token(1), Brief::Put);
        completions.done(Token(2), Brief::Got);
        completions.push(Event::Writable { peer: Peer { index: 0, generation: 0 } });
        completions.done(Token(3), Brief::Sent);
        assert_eq!(completions.len(), 4);
        let mut events = Vec::new();
        assert!(completions.take(1, &mut events) && events.len() == 1);
        assert!(completions.take(10, &mut events) && completions.is_empty());
        assert!(!completions.take(10, &mut events));
        assert!(matches!(
            events[..],
            [
                Event::Done { token: Token(1), result: Ok(Done::Put) },
                Event::Done { token: Token(2), result: Ok(Done::Got) },
                Event::Writable { .. },
                Event::Done { token: Token(3), result: Ok(Done::Sent) },
            ]
        ));
    }
}
