//! The job data of a PMIx server, as a map of ours.

use super::buffer::{Reader, Typed, bad};
use crate::{
    JobId, Node, Value,
    job::{JobMap, JobSpec, MAX_RANKS, NodeInfo, Run},
};
use std::{collections::BTreeMap, io};

/// Nodes of a job.
const MAX_NODES: usize = 1 << 20;

/// The nodes of the ranks, as far as they are known.
struct RankNodes {
    of: Vec<Option<u32>>,
    names: BTreeMap<u32, String>,
}

fn number(value: &Typed) -> Option<u32> {
    let Typed::Plain(value) = value else { return None };
    u32::try_from(value.as_u64()?).ok()
}

fn text(value: &Typed) -> Option<&str> {
    if let Typed::Plain(value) = value { value.as_str() } else { None }
}

impl RankNodes {
    fn put(&mut self, rank: u32, node: u32) {
        if let Some(place) = self.of.get_mut(rank as usize) {
            place.get_or_insert(node);
        }
    }

    /// A node, by its number and name, with the ranks on it: `0,1,4` or `0-3`.
    fn node(&mut self, infos: &[(String, Typed)], nth: u32) -> io::Result<()> {
        let find = |key: &str| infos.iter().find(|(name, _)| name == key).map(|(_, value)| value);
        let node = find("pmix.nodeid").and_then(number).unwrap_or(nth);
        if let Some(name) = find("pmix.hname").and_then(text) {
            self.names.insert(node, name.to_owned());
        }
        for part in find("pmix.lpeers").and_then(text).unwrap_or_default().split(',') {
            if part.is_empty() {
                continue;
            }
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let ends = (first.trim().parse::<u32>(), last.trim().parse::<u32>());
            let (Ok(first), Ok(last)) = ends else { return Err(bad("ranks that are no numbers")) };
            for rank in first..=last.min(self.of.len() as u32) {
                self.put(rank, node);
            }
        }
        Ok(())
    }
}

/// The job from the answer to the first request, with the name that the server gave it; `own` is
/// the name of this host.
pub(super) fn read(payload: &[u8], own: &str) -> io::Result<(JobMap, String)> {
    let mut from = Reader(payload);
    from.count()?;
    let space = from.text()?;
    let pairs = from.pairs()?;
    let size = pairs.iter().find(|(key, _)| key == "pmix.job.size");
    let size = size.and_then(|(_, size)| number(size)).filter(|size| *size <= MAX_RANKS);
    let size = size.ok_or_else(|| bad(&format!("no size of the job, {MAX_RANKS} at most")))?;
    let mut rank_nodes = RankNodes { of: vec![None; size as usize], names: BTreeMap::new() };
    let mut info = Vec::new();
    for (at, (key, value)) in pairs.into_iter().enumerate() {
        match (key.as_str(), value) {
            ("pmix.node.arr", Typed::Infos(infos)) => rank_nodes.node(&infos, at as u32)?,
            ("pmix.pblob", Typed::Plain(Value::Bytes(bytes))) => rank(&bytes, &mut rank_nodes)?,
            (_, Typed::Plain(value)) if !key.starts_with("pmix.srv.") => info.push((key, value)),
            _ => {}
        }
    }
    if rank_nodes.of.iter().all(Option::is_none) {
        // The server says nothing of nodes: then there is one.
        rank_nodes.of.fill(Some(0));
    }
    let nodes = rank_nodes.names.keys().chain(rank_nodes.of.iter().flatten()).max();
    let nodes = nodes.map_or(1, |last| *last as usize + 1);
    if nodes > MAX_NODES {
        return Err(bad(&format!("{nodes} nodes: at most {MAX_NODES} are allowed")));
    }
    let mut runs: Vec<Run> = Vec::new();
    for (rank, node) in rank_nodes.of.iter().enumerate() {
        let node = Node(node.ok_or_else(|| bad(&format!("it is silent on where rank {rank} is")))?);
        match runs.last_mut().filter(|run| run.node == node) {
            Some(run) => run.count += 1,
            None => runs.push(Run { node, count: 1 }),
        }
    }
    let name = |node: u32| rank_nodes.names.get(&node).cloned().unwrap_or_else(|| own.to_owned());
    let plain = super::super::foreign::plain(&space);
    // The ranks exchange their addresses themselves.
    let node = |node| NodeInfo { name: name(node), base: String::new(), first: 0 };
    let spec = JobSpec {
        id: JobId(0),
        name: plain,
        nodes: (0..nodes as u32).map(node).collect(),
        runs,
        // Keys that follow from the nodes of the ranks are answered there.
        info: info.into_iter().filter(|(key, _)| !DERIVED.contains(&key.as_str())).collect(),
    };
    let map = JobMap::new(spec).map_err(|error| bad(&error.to_string()))?;
    Ok((map, space))
}

const DERIVED: [&str; 4] = ["pmix.job.size", "pmix.max.size", "pmix.num.nodes", "pmix.nlist"];

/// The data of one rank.
fn rank(bytes: &[u8], rank_nodes: &mut RankNodes) -> io::Result<()> {
    let mut from = Reader(bytes);
    from.count()?;
    let rank = u32::try_from(from.unsigned()?).map_err(|_| bad("a rank beyond 32 bits"))?;
    for (key, value) in from.pairs()? {
        if key == "pmix.nodeid"
            && let Some(node) = number(&value)
        {
            rank_nodes.put(rank, node);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{super::buffer::Writer, *};

    fn job_payload(size: u64, nodes: &[(u64, &str, &str)]) -> Vec<u8> {
        let mut out = Writer::default();
        out.count(1);
        out.text("a job@1");
        out.pair("pmix.job.size", &Value::Uint(size));
        out.pair("pmix.mapby", &"BYCORE".into());
        for (id, name, peers) in nodes {
            out.count(1);
            out.text("pmix.node.arr");
            out.typed(&Typed::Infos(vec![
                ("pmix.hname".into(), Typed::Plain((*name).into())),
                ("pmix.nodeid".into(), Typed::Plain((*id).into())),
                ("pmix.lpeers".into(), Typed::Plain((*peers).into())),
            ]));
        }
        out.0
    }

    #[test]
    fn ranks_are_where_the_server_says() {
        let bytes = job_payload(5, &[(0, "a", "0,2"), (1, "b", "1,3-4")]);
        let (map, space) = read(&bytes, "own").unwrap();
        let on = |node| map.ranks_on(Node(node)).to_vec();
        assert_eq!((on(0), on(1)), (vec![0, 2], vec![1, 3, 4]));
        assert_eq!((map.size(), space.as_str()), (5, "a job@1"));
        assert_eq!(map.value(3, "pmix.hname"), Some("b".into()));
        assert_eq!(map.value(0, "pmix.mapby"), Some("BYCORE".into()));
        let (map, _) = read(&job_payload(3, &[]), "own").unwrap();
        assert_eq!(map.value(2, "pmix.hname"), Some("own".into()));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for bytes in [
            job_payload(u64::from(MAX_RANKS) + 1, &[]),
            job_payload(3, &[(0, "a", "0,1")]),
            job_payload(1, &[(1 << 30, "a", "0")]),
            job_payload(1, &[(0, "a", "x")]),
            job_payload(2, &[(0, "a", "0-1")])[..30].to_vec(),
            Vec::new(),
        ] {
            assert!(read(&bytes, "own").is_err());
        }
        // More ranks on a node than there are: they are ignored.
        assert!(read(&job_payload(2, &[(0, "a", "0-4000000000")]), "own").is_ok());
    }
}
