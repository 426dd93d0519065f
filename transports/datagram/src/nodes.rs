//! Names for what belongs to a network and is held elsewhere: nodes of its table, and objects of
//! the library.
//!
//! A library is given pointers and indices, and does whatever they say. So only its network has
//! them; other code gets a name, which is looked up. Names are used once in a process: the name of
//! another network's object, or of one that was removed, names nothing.

use petasos_fabric::dropped::Dropped;
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// A number that was not used before in this process.
fn number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Relaxed)
}

/// An endpoint in a network's table of addresses. Made by its [`Nodes`] alone:
///
/// ```compile_fail,E0451
/// let forged = petasos_datagram::Node { index: 0, number: 0 };
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    index: u32,
    number: u64,
}

/// A network's table of nodes.
#[derive(Debug)]
pub struct Nodes<T> {
    list: Vec<Option<(u64, T)>>,
    free: Vec<u32>,
}

impl<T> Default for Nodes<T> {
    fn default() -> Nodes<T> {
        Nodes { list: Vec::new(), free: Vec::new() }
    }
}

impl<T> Nodes<T> {
    /// Puts one in.
    ///
    /// # Panics
    /// If there are 2^32.
    pub fn insert(&mut self, what: T) -> Node {
        let number = number();
        let index = self.free.pop().unwrap_or_else(|| {
            self.list.push(None);
            u32::try_from(self.list.len() - 1).expect("fewer nodes than 2^32")
        });
        self.list[index as usize] = Some((number, what));
        Node { index, number }
    }

    /// The entry of a node; `None` if the node is not of this table, or was removed.
    #[inline]
    #[must_use]
    pub fn get(&self, node: Node) -> Option<&T> {
        match self.list.get(node.index as usize) {
            Some(Some((number, what))) if *number == node.number => Some(what),
            _ => None,
        }
    }

    /// The entries of all nodes.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.list.iter().flatten().map(|(_, what)| what)
    }

    /// Takes one out.
    pub fn remove(&mut self, node: Node) -> Option<T> {
        self.get(node)?;
        let (_, what) = self.list[node.index as usize].take()?;
        self.free.push(node.index);
        Some(what)
    }
}

/// The name of a network's object, held elsewhere. When it is dropped, on whichever thread, the
/// network learns of it; the object itself is the network's, which returns it to the library at the
/// next [`Objects::returned`], or when it ends. Only a network makes one:
///
/// ```compile_fail,E0451
/// let forged = petasos_datagram::Handle { number: 0, dropped: Default::default() };
/// ```
#[derive(Debug)]
pub struct Handle {
    number: u64,
    dropped: Arc<Dropped>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.dropped.tell(self.number);
    }
}

/// A network's objects whose names are held elsewhere.
#[derive(Debug)]
pub struct Objects<T> {
    list: HashMap<u64, T>,
    dropped: Arc<Dropped>,
}

impl<T> Default for Objects<T> {
    fn default() -> Objects<T> {
        Objects { list: HashMap::new(), dropped: Arc::default() }
    }
}

impl<T> Objects<T> {
    /// Puts one in.
    pub fn insert(&mut self, object: T) -> Handle {
        let number = number();
        self.list.insert(number, object);
        Handle { number, dropped: self.dropped.clone() }
    }

    /// The object of this name; `None` if it is another network's.
    #[must_use]
    pub fn get(&self, handle: &Handle) -> Option<&T> {
        self.list.get(&handle.number)
    }

    /// Takes those out whose names were dropped.
    pub fn returned(&mut self) -> Vec<T> {
        let dropped = self.dropped.take();
        dropped.iter().filter_map(|number| self.list.remove(number)).collect()
    }

    /// Takes all out, whether their names are held or not.
    pub fn all(&mut self) -> Vec<T> {
        self.list.drain().map(|(_, object)| object).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_of_one_table_and_one_time() {
        let (mut nodes, mut others) = (Nodes::default(), Nodes::default());
        let (node, other) = (nodes.insert("a"), others.insert("b"));
        assert_eq!((nodes.get(node), others.get(other)), (Some(&"a"), Some(&"b")));
        assert_eq!((nodes.get(other), others.get(node)), (None, None));
        assert_eq!(nodes.remove(other), None);
        assert_eq!((nodes.remove(node), nodes.remove(node)), (Some("a"), None));
        let next = nodes.insert("c");
        assert_eq!(next.index, node.index);
        assert_eq!((nodes.get(node), nodes.get(next)), (None, Some(&"c")));
    }

    #[test]
    fn objects_go_when_their_names_are_dropped_anywhere() {
        let (mut objects, mut others) = (Objects::default(), Objects::default());
        let [handle, kept] = ["a", "b"].map(|object| objects.insert(object));
        let other = others.insert("c");
        assert_eq!((objects.get(&handle), objects.get(&other)), (Some(&"a"), None));
        std::thread::spawn(move || drop((handle, other))).join().unwrap();
        assert_eq!((objects.returned(), objects.returned()), (vec!["a"], vec![]));
        assert_eq!(objects.get(&kept), Some(&"b"));
        assert_eq!((objects.all(), objects.get(&kept)), (vec!["b"], None));
        drop(kept);
        assert!(objects.returned().is_empty());
    }
}
