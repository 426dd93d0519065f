//! Doubly linked lists through the slots of a table. A value can be on two of them, one of each
//! *sort*.

use crate::handle::Table;

/// No slot.
pub(crate) const NIL: u32 = u32::MAX;

/// The links of a value in one list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Links {
    pub(crate) prev: u32,
    pub(crate) next: u32,
}

impl Default for Links {
    fn default() -> Links {
        Links { prev: NIL, next: NIL }
    }
}

/// A value that can be on a list of sort 0 and on one of sort 1.
pub(crate) trait Linked {
    fn links(&self, sort: usize) -> &Links;
    fn links_mut(&mut self, sort: usize) -> &mut Links;
}

/// A list of sort `S`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain<const S: usize> {
    pub(crate) head: u32,
    pub(crate) tail: u32,
}

impl<const S: usize> Default for Chain<S> {
    fn default() -> Chain<S> {
        Chain { head: NIL, tail: NIL }
    }
}

impl<const S: usize> Chain<S> {
    pub(crate) fn is_empty(&self) -> bool {
        self.head == NIL
    }

    /// Inserts `index` behind `prev`, or at the front if that is [`NIL`].
    pub(crate) fn insert_after<T: Linked>(&mut self, nodes: &mut Table<T>, prev: u32, index: u32) {
        let next = match prev {
            NIL => std::mem::replace(&mut self.head, index),
            prev => std::mem::replace(&mut nodes[prev].links_mut(S).next, index),
        };
        match next {
            NIL => self.tail = index,
            next => nodes[next].links_mut(S).prev = index,
        }
        *nodes[index].links_mut(S) = Links { prev, next };
    }

    pub(crate) fn push_back<T: Linked>(&mut self, nodes: &mut Table<T>, index: u32) {
        self.insert_after(nodes, self.tail, index);
    }

    pub(crate) fn remove<T: Linked>(&mut self, nodes: &mut Table<T>, index: u32) {
        let Links { prev, next } = std::mem::take(nodes[index].links_mut(S));
        match prev {
            NIL => self.head = next,
            prev => nodes[prev].links_mut(S).next = next,
        }
        match next {
            NIL => self.tail = prev,
            next => nodes[next].links_mut(S).prev = prev,
        }
    }

    /// The slots, in order.
    pub(crate) fn iter<T: Linked>(self, nodes: &Table<T>) -> impl Iterator<Item = u32> {
        let step = |at: &u32| Some(nodes[*at].links(S).next).filter(|next| *next != NIL);
        std::iter::successors(Some(self.head).filter(|head| *head != NIL), step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handle::Handle;

    struct Node([Links; 2]);

    impl Linked for Node {
        fn links(&self, sort: usize) -> &Links {
            &self.0[sort]
        }
        fn links_mut(&mut self, sort: usize) -> &mut Links {
            &mut self.0[sort]
        }
    }

    #[test]
    fn in_and_out_anywhere() {
        let mut nodes = Table::new(10);
        for _ in 0..4 {
            let _: Handle<Node> = nodes.insert(Node(Default::default())).unwrap();
        }
        let mut chain = Chain::<1>::default();
        chain.push_back(&mut nodes, 0);
        chain.push_back(&mut nodes, 1);
        chain.insert_after(&mut nodes, 0, 2);
        chain.insert_after(&mut nodes, NIL, 3);
        assert_eq!(chain.iter(&nodes).collect::<Vec<_>>(), [3, 0, 2, 1]);
        for (gone, left) in [(0, vec![3, 2, 1]), (1, vec![3, 2]), (3, vec![2]), (2, vec![])] {
            chain.remove(&mut nodes, gone);
            assert_eq!(chain.iter(&nodes).collect::<Vec<_>>(), left);
        }
        assert!(chain.is_empty() && chain.tail == NIL);
    }
}
