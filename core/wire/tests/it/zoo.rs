//! Derived types of every kind, nested in each other, and strategies that make values of them.

// Each test crate uses a part of it.
#![allow(dead_code, unreachable_pub)]

use bytes::Bytes;
use petasos_macros::Wire;
use petasos_wire::Encoding;
use proptest::{collection as some, prelude::*};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    marker::PhantomData,
    sync::Arc,
    time::Duration,
};

pub const BOTH: [Encoding; 2] = [Encoding::Native, Encoding::Xdr];

#[derive(Wire, Clone, Debug, PartialEq)]
pub struct Zoo {
    pub animals: Vec<Animal>,
    pub keepers: HashMap<String, Keeper>,
    pub visitors: BTreeMap<u8, Option<[u64; 20]>>,
    pub tickets: (u8, i8, u16, i16, u32, i32, u64, i64),
    pub tree: Tree<i32>,
    pub map: Box<[f32]>,
    pub motto: Arc<str>,
    pub sealed: Bytes,
}

#[derive(Wire, Clone, Debug, PartialEq)]
pub struct Animal {
    pub name: String,
    pub legs: u8,
    pub weight: f64,
    pub cage: Option<(i16, i64)>,
    pub food: Vec<Food>,
    pub marks: [u16; 3],
    pub colour: [u8; 3],
    pub picture: Vec<u8>,
}

#[derive(Wire, Clone, Debug, PartialEq)]
pub enum Food {
    Nothing,
    Hay(u32, bool),
    #[wire(tag = 9)]
    Fish {
        kind: char,
        fresh: Result<Duration, String>,
    },
    Leaves(Grid<i16, 2>, Unit),
    #[wire(tag = 0xffff_ffff)]
    Other(Box<Food2>),
}

/// A second enum, so that the derive sees an enum in an enum.
#[derive(Wire, Clone, Debug, PartialEq)]
pub enum Food2 {
    One(u128),
    Many(VecDeque<usize>),
}

#[derive(Wire, Clone, Debug, PartialEq)]
pub struct Keeper(pub BTreeSet<i32>, pub HashSet<i8>, pub Vec<bool>, pub Vec<[u8; 3]>);

#[derive(Wire, Clone, Debug, PartialEq)]
pub struct Tree<T>
where
    T: Copy,
{
    pub leaf: T,
    #[wire(recursive)]
    pub branches: Vec<Tree<T>>,
}

#[derive(Wire, Clone, Debug, PartialEq)]
pub struct Grid<T, const N: usize> {
    pub cells: [[T; N]; N],
    pub rows: Vec<[T; N]>,
    pub unit: PhantomData<T>,
}

#[derive(Wire, Clone, Debug, PartialEq)]
pub struct Unit;

/// The list of RFC 4506, section 4.19.
#[derive(Wire, Clone, Debug, PartialEq)]
pub struct Chain<T> {
    pub link: T,
    #[wire(recursive)]
    pub next: Option<Box<Chain<T>>>,
}

impl Chain<u8> {
    /// So many links after the first.
    pub fn long(links: usize) -> Chain<u8> {
        let first = Chain { link: 0, next: None };
        (0..links).fold(first, |chain, _| Chain { link: 1, next: Some(Box::new(chain)) })
    }
}

fn grid() -> impl Strategy<Value = Grid<i16, 2>> {
    (any::<[[i16; 2]; 2]>(), any::<Vec<[i16; 2]>>()).prop_map(|(cells, rows)| Grid {
        cells,
        rows,
        unit: PhantomData,
    })
}

fn food() -> impl Strategy<Value = Food> {
    let fresh = prop_oneof![
        (any::<u64>(), 0..1_000_000_000u32).prop_map(|(s, n)| Ok(Duration::new(s, n))),
        any::<String>().prop_map(Err),
    ];
    let other = prop_oneof![
        any::<u128>().prop_map(Food2::One),
        some::vec_deque(any::<usize>(), 0..4).prop_map(Food2::Many),
    ];
    prop_oneof![
        Just(Food::Nothing),
        any::<(u32, bool)>().prop_map(|(a, b)| Food::Hay(a, b)),
        (any::<char>(), fresh).prop_map(|(kind, fresh)| Food::Fish { kind, fresh }),
        grid().prop_map(|grid| Food::Leaves(grid, Unit)),
        other.prop_map(|other| Food::Other(Box::new(other))),
    ]
}

fn animal() -> impl Strategy<Value = Animal> {
    let parts = (
        any::<(String, u8, f64)>(),
        any::<Option<(i16, i64)>>(),
        some::vec(food(), 0..5),
        any::<([u16; 3], [u8; 3])>(),
        some::vec(any::<u8>(), 0..300),
    );
    parts.prop_map(|((name, legs, weight), cage, food, (marks, colour), picture)| Animal {
        name,
        legs,
        weight,
        cage,
        food,
        marks,
        colour,
        picture,
    })
}

fn keeper() -> impl Strategy<Value = Keeper> {
    let parts = (
        some::btree_set(any::<i32>(), 0..30),
        some::hash_set(any::<i8>(), 0..30),
        any::<Vec<bool>>(),
        some::vec(any::<[u8; 3]>(), 0..4),
    );
    parts.prop_map(|(a, b, c, d)| Keeper(a, b, c, d))
}

fn tree() -> impl Strategy<Value = Tree<i32>> {
    let leaf = any::<i32>().prop_map(|leaf| Tree { leaf, branches: Vec::new() });
    leaf.prop_recursive(6, 30, 4, |inner| {
        (any::<i32>(), some::vec(inner, 0..4)).prop_map(|(leaf, branches)| Tree { leaf, branches })
    })
}

pub fn zoo() -> impl Strategy<Value = Zoo> {
    let visitor = any::<Option<u64>>().prop_map(|seed| seed.map(|seed| [seed; 20]));
    let parts = (
        some::vec(animal(), 0..4),
        some::hash_map(any::<String>(), keeper(), 0..4),
        some::btree_map(any::<u8>(), visitor, 0..20),
        any::<(u8, i8, u16, i16, u32, i32, u64, i64)>(),
        tree(),
        some::vec(any::<f32>(), 0..200),
        any::<String>(),
        any::<Vec<u8>>(),
    );
    parts.prop_map(|(animals, keepers, visitors, tickets, tree, map, motto, sealed)| Zoo {
        animals,
        keepers,
        visitors,
        tickets,
        tree,
        map: map.into(),
        motto: motto.into(),
        sealed: sealed.into(),
    })
}
