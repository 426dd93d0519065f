//! The peers whose rings are polled: which first, and how often.

/// Peers polled in each pass; of the others, as many as that as well, in turns.
pub(crate) const FRONT: usize = 8;
/// Messages taken from one peer before it is another's turn.
pub(crate) const PER_PEER: usize = 32;

/// Peers that are polled: those that were active lately in front. All others have to ring.
#[derive(Default)]
pub(crate) struct Watchlist {
    peers: Vec<u32>,
    /// Of those behind the front, the one that is polled next.
    round: usize,
    /// The one of them that was polled last, unless it had sent something.
    quiet: Option<u32>,
    /// Of those in front, the last one in whose place another came.
    replaced: usize,
    /// Of those in front, the one last polled for a single message.
    turn: usize,
    /// Messages taken from it since.
    streak: usize,
}

impl Watchlist {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.peers.len()
    }

    /// All of them. In the short way for one peer a match on this is two instructions less than
    /// [`only`](Self::only).
    #[inline(always)]
    pub(crate) fn peers(&self) -> &[u32] {
        &self.peers
    }

    /// The peer, if there is just one.
    #[inline(always)]
    pub(crate) fn only(&self) -> Option<u32> {
        match self.peers[..] {
            [only] => Some(only),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn get(&self, at: usize) -> Option<u32> {
        self.peers.get(at).copied()
    }

    #[inline]
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, u32> {
        self.peers.iter()
    }

    /// Adds a peer, in front: the peer in whose place it comes is polled when all others were. (At
    /// the end of the list it would be polled before those at the beginning, and so would all that
    /// come after it.)
    pub(crate) fn add(&mut self, peer: u32) {
        if self.peers.len() < FRONT {
            return self.peers.push(peer);
        }
        let at = (FRONT + self.round).min(self.peers.len());
        self.peers.insert(at, peer);
        self.round = at - FRONT + 1;
        self.promote(at);
    }

    /// Removes a peer. Of those behind the front the same one is next as before.
    pub(crate) fn remove(&mut self, peer: u32) {
        let Some(at) = self.peers.iter().position(|other| *other == peer) else { return };
        self.peers.remove(at);
        self.quiet = self.quiet.filter(|quiet| *quiet != peer);
        if at < FRONT + self.round {
            self.round = self.round.saturating_sub(1);
        }
    }

    /// The peer to remove when there are too many: one that was just found to have sent nothing, or
    /// the one that is polled next, at which its remover looks once more. Not one that has just come.
    pub(crate) fn least_likely(&self) -> Option<u32> {
        let behind = self.behind_front();
        let next = behind.get(self.round).or(behind.first()).or(self.peers.last());
        self.quiet.or(next.copied())
    }

    /// Those that are polled in turns.
    pub(crate) fn behind_front(&self) -> &[u32] {
        self.peers.get(FRONT..).unwrap_or_default()
    }

    /// The next of those, and where it stands in the list.
    pub(crate) fn next_behind_front(&mut self) -> Option<(usize, u32)> {
        let rest = self.peers.len().saturating_sub(FRONT);
        if rest == 0 {
            return None;
        }
        self.round %= rest;
        let at = FRONT + self.round;
        self.round += 1;
        self.quiet = Some(self.peers[at]);
        Some((at, self.peers[at]))
    }

    /// The peer that stands here is active: it goes to the front, in the place of another each
    /// time.
    pub(crate) fn promote(&mut self, at: usize) {
        if let Some(peer) = self.peers.get(at) {
            self.quiet = self.quiet.filter(|quiet| quiet != peer);
            self.replaced = (self.replaced + 1) % FRONT;
            self.peers.swap(at, self.replaced);
        }
    }

    // Single messages.

    /// Peers in front.
    #[inline]
    pub(crate) fn front_len(&self) -> usize {
        self.peers.len().min(FRONT)
    }

    /// The peer to poll first for a single message. The one that sent last is likely to send next;
    /// but one that never pauses does not keep out the others.
    #[inline]
    pub(crate) fn begin_turn(&mut self) {
        if self.turn >= self.front_len() || self.streak >= PER_PEER {
            self.next_turn();
        }
    }

    /// The peer whose turn it is.
    #[inline]
    pub(crate) fn turn(&self) -> Option<u32> {
        self.get(self.turn)
    }

    #[inline]
    pub(crate) fn next_turn(&mut self) {
        self.turn = if self.turn + 1 < self.front_len() { self.turn + 1 } else { 0 };
        self.streak = 0;
    }

    /// A message of this weight was taken from the peer whose turn it is.
    #[inline]
    pub(crate) fn took(&mut self, weight: usize) {
        self.streak += weight;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(count: u32) -> Watchlist {
        let mut list = Watchlist::default();
        (0..count).for_each(|peer| list.add(peer));
        list
    }

    #[test]
    fn each_peer_behind_the_front_is_polled_in_turn() {
        let mut list = of(20);
        let rest = list.behind_front().to_vec();
        let mut polled: Vec<u32> =
            rest.iter().map(|_| list.next_behind_front().unwrap().1).collect();
        polled.sort_unstable();
        let mut expected = rest;
        expected.sort_unstable();
        assert_eq!(polled, expected);
        assert!(of(FRONT as u32).next_behind_front().is_none());
    }

    /// Peers come and go all the time where many send: with each that is polled the one polled last
    /// is removed, and another one added.
    #[test]
    fn no_peer_is_passed_over_while_others_come_and_go() {
        let mut list = of(100);
        let mut waiting = list.behind_front().to_vec();
        let first = waiting.len();
        for new in 1000..1000 + 2 * first as u32 {
            let (_, peer) = list.next_behind_front().unwrap();
            waiting.retain(|other| *other != peer);
            let gone = list.least_likely().unwrap();
            assert_eq!(gone, peer);
            list.remove(gone);
            list.add(new);
        }
        assert!(waiting.is_empty(), "never polled: {waiting:?}");
    }

    /// Many ring at once, and there are too many already.
    #[test]
    fn peers_that_come_together_do_not_displace_each_other() {
        let mut list = of(100);
        list.next_behind_front();
        for new in 1000..1050 {
            let gone = list.least_likely().unwrap();
            assert!(gone < 1000, "{gone} has not been polled yet");
            list.remove(gone);
            list.add(new);
        }
        assert_eq!(list.len(), 100);
    }

    #[test]
    fn the_next_peer_stays_the_next_when_another_is_removed() {
        for polled in 0..12 {
            for removed in 0..20 {
                let mut list = of(20);
                (0..polled).for_each(|_| _ = list.next_behind_front());
                let upcoming = |mut list: Watchlist| -> Vec<u32> {
                    let rest = list.behind_front().len();
                    (0..rest).map(|_| list.next_behind_front().unwrap().1).collect()
                };
                let expected = upcoming(Watchlist { peers: list.peers.clone(), ..list });
                let peer = list.peers[removed];
                list.remove(peer);
                // One may have moved to the front.
                let got = upcoming(list);
                let still: Vec<u32> =
                    expected.into_iter().filter(|peer| got.contains(peer)).collect();
                assert_eq!(got, still, "{polled} polled, the one at {removed} is removed");
            }
        }
    }

    #[test]
    fn a_peer_that_is_added_or_promoted_stands_in_front() {
        let mut list = of(20);
        assert!(!list.behind_front().contains(&19));
        let (at, peer) = list.next_behind_front().unwrap();
        list.promote(at);
        assert!(!list.behind_front().contains(&peer) && list.len() == 20);
        list.remove(peer);
        assert!(!list.iter().any(|other| *other == peer));
    }

    #[test]
    fn a_peer_that_never_pauses_loses_its_turn() {
        let mut list = of(3);
        list.begin_turn();
        let first = list.turn();
        list.took(PER_PEER - 1);
        list.begin_turn();
        assert_eq!(list.turn(), first);
        list.took(1);
        list.begin_turn();
        assert_ne!(list.turn(), first);
    }

    #[test]
    fn an_empty_list_has_no_peers() {
        let mut list = Watchlist::default();
        list.begin_turn();
        assert_eq!((list.turn(), list.only(), list.least_likely()), (None, None, None));
    }
}
