//! Values of every kind that travels, nested in each other.

use bytes::Bytes;
use petasos_macros::Wire;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    marker::PhantomData,
    sync::Arc,
    time::Duration,
};

/// All that has one encoding: numbers not equal to themselves included.
#[derive(Wire, Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct Ordered {
    pub food: Vec<Food>,
    pub weights: (f32, f64, Option<[f64; 3]>),
    pub map: Box<[f32]>,
    pub visitors: BTreeMap<u8, Option<[u64; 20]>>,
    pub tickets: (u8, i8, u16, i16, u32, i32, u64, i64),
    pub tree: Tree<i32>,
    pub cages: BTreeSet<(bool, String)>,
    pub motto: Arc<str>,
    pub sealed: Bytes,
}

/// Tables, which have an encoding for each order.
#[derive(Wire, Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct Tables {
    pub keepers: HashMap<String, (HashSet<i8>, Vec<[u8; 3]>, Vec<u16>)>,
    pub food: HashMap<u8, Food>,
    pub nothing: Vec<()>,
    pub maps: Vec<BTreeMap<u8, BTreeMap<u8, HashMap<u8, u8>>>>,
}

/// An enum with numbers of its own.
#[derive(Wire, Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Food {
    Nothing,
    Hay(u32, bool),
    #[wire(tag = 9)]
    Fish {
        kind: char,
        fresh: Result<Duration, String>,
    },
    Leaves(Grid<i16, 2>),
    #[wire(tag = 0xffff_ffff)]
    Other(Box<Leftovers>),
}

/// An enum within it.
#[derive(Wire, Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Leftovers {
    One(u128, usize),
    Many(VecDeque<isize>),
}

/// A type that contains itself, in a vector.
#[derive(Wire, Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct Tree<T: Copy> {
    pub leaf: T,
    #[wire(recursive)]
    pub branches: Vec<Tree<T>>,
}

/// A generic type with a number.
#[derive(Wire, Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct Grid<T, const N: usize> {
    pub cells: [[T; N]; N],
    pub rows: Vec<[T; N]>,
    pub unit: PhantomData<T>,
}

/// The list of RFC 4506, section 4.19.
#[derive(Wire, Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct Chain {
    pub link: u8,
    #[wire(recursive)]
    pub next: Option<Box<Chain>>,
}

/// A descriptor of bulk memory as a process sees it that did not make it.
#[derive(Wire, Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct BulkBytes {
    pub memory: Option<(u64, Bytes)>,
    pub inline: Option<Bytes>,
    pub access: u8,
}

/// One with something of everything.
#[must_use]
pub fn ordered() -> Ordered {
    let leaf = |leaf| Tree { leaf, branches: Vec::new() };
    let grid = Grid { cells: [[1, 2], [3, -4]], rows: vec![[5, 6]], unit: PhantomData };
    Ordered {
        food: vec![
            Food::Nothing,
            Food::Hay(7, true),
            Food::Fish { kind: 'x', fresh: Ok(Duration::new(1, 2)) },
            Food::Fish { kind: '\u{1f41f}', fresh: Err("old".to_owned()) },
            Food::Leaves(grid),
            Food::Other(Box::new(Leftovers::One(1 << 100, 9))),
            Food::Other(Box::new(Leftovers::Many([1, -1].into()))),
        ],
        weights: (f32::NAN, -0.0, Some([1.0, f64::INFINITY, 0.5])),
        map: [1.0, 2.0].into(),
        visitors: [(1, None), (2, Some([3; 20]))].into(),
        tickets: (1, -2, 3, -4, 5, -6, 7, -8),
        tree: Tree { leaf: 0, branches: vec![leaf(1), Tree { leaf: 2, branches: vec![leaf(3)] }] },
        cages: [(true, "a".to_owned()), (false, "b".to_owned())].into(),
        motto: "per aspera".into(),
        sealed: Bytes::from_static(b"sealed"),
    }
}

/// The same for tables.
#[must_use]
pub fn tables() -> Tables {
    Tables {
        keepers: [("ann".to_owned(), ([1, -1].into(), vec![[1, 2, 3]], vec![4, 5]))].into(),
        food: [(1, Food::Nothing), (2, Food::Hay(3, false))].into(),
        nothing: vec![(); 3],
        maps: vec![[(1, [(2, [(3, 4)].into())].into())].into()],
    }
}

/// So many links.
#[must_use]
pub fn chain(links: usize) -> Chain {
    let first = Chain { link: 0, next: None };
    (1..links).fold(first, |chain, _| Chain { link: 1, next: Some(Box::new(chain)) })
}
