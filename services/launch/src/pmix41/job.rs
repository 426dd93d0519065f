//! Job data in OpenPMIx's form: everything that a client knows of its job without a request.

use super::{
    VERSION,
    surroundings::{Surroundings, cpu_set, locality},
};
use petasos_pmix::server::packing::{kind, put_bytes, put_signed, put_text, put_unsigned};
use petasos_pmix::{Node, job::JobMap};

/// The types of values that job data has.
#[derive(Clone, Debug)]
enum Typed<'a> {
    Text(&'a str),
    Bool(bool),
    U16(u16),
    U32(u32),
    U64(u64),
    Rank(u32),
    Bytes(Vec<u8>),
    Texts(Vec<String>),
    Array(Vec<(&'a str, Typed<'a>)>),
}

fn put_pair(out: &mut Vec<u8>, key: &str, value: &Typed<'_>) {
    put_signed(out, 1);
    put_text(out, key);
    put_unsigned(out, value.kind());
    value.put(out);
}

impl Typed<'_> {
    fn kind(&self) -> u64 {
        u64::from(match self {
            Typed::Text(_) => kind::STRING,
            Typed::Bool(_) => kind::BOOL,
            Typed::U16(_) => kind::UINT16,
            Typed::U32(_) => kind::UINT32,
            Typed::U64(_) => kind::UINT64,
            Typed::Bytes(_) => kind::BYTES,
            Typed::Texts(_) | Typed::Array(_) => kind::ARRAY,
            Typed::Rank(_) => kind::RANK,
        })
    }

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Typed::Text(text) => put_text(out, text),
            Typed::Bool(value) => out.push(u8::from(*value)),
            Typed::U16(number) => put_unsigned(out, u64::from(*number)),
            Typed::U32(number) | Typed::Rank(number) => put_unsigned(out, u64::from(*number)),
            Typed::U64(number) => put_unsigned(out, *number),
            Typed::Bytes(bytes) => put_bytes(out, bytes),
            Typed::Texts(texts) => {
                put_unsigned(out, kind::STRING.into());
                put_unsigned(out, texts.len() as u64);
                texts.iter().for_each(|text| put_text(out, text));
            }
            Typed::Array(infos) => {
                // An array of infos: key, flags, type, value.
                put_unsigned(out, kind::INFO.into());
                put_unsigned(out, infos.len() as u64);
                for (key, value) in infos {
                    put_text(out, key);
                    put_unsigned(out, 0);
                    put_unsigned(out, value.kind());
                    value.put(out);
                }
            }
        }
    }
}

/// The directory for a rank's own files, in the job's private directory.
pub(crate) fn own_directory(directory: &str, rank: u32) -> String {
    format!("{directory}/rank.{rank}")
}

/// All job data, as a client receives it once: that of this rank.
pub(super) fn job_data(
    job: &JobMap,
    own_node: Node,
    around: &Surroundings,
    directory: &str,
    own: Option<u32>,
) -> Vec<u8> {
    let mut out = Vec::new();
    let own = own_directory(directory, own.unwrap_or_default());
    put_signed(&mut out, 1);
    let size = job.size();
    put_text(&mut out, job.namespace());
    let hosts = job.hosts();
    let name = |node: &Node| job.node(*node).map_or("", |node| node.name.as_str());
    let names: Vec<&str> = hosts.iter().map(name).collect();
    let names = names.join(",");
    let numbers = [
        ("pmix.job.size", size),
        ("pmix.max.size", size),
        ("pmix.univ.size", size),
        ("pmix.num.nodes", hosts.len() as u32),
        ("pmix.job.napps", 1),
        ("pmix.appnum", 0),
    ];
    for (key, number) in numbers {
        put_pair(&mut out, key, &Typed::U32(number));
    }
    let texts = [
        ("pmix.jobid", job.namespace()),
        ("pmix.nlist", &names),
        ("pmix.bfrops.mod", VERSION),
        // Open MPI 5 makes directories of its own where no directory is named, and leaves some
        // behind.
        ("pmix.tmpdir", directory),
        ("pmix.nsdir", directory),
        ("pmix.pdir", &own),
    ];
    for (key, text) in texts {
        put_pair(&mut out, key, &Typed::Text(text));
    }
    // Otherwise Open MPI 4.1 removes the job's directory, with all that is in it, when a rank is
    // done.
    put_pair(&mut out, "pmix.tdir.rmclean", &Typed::Bool(true));
    let session =
        vec![("pmix.session.id", Typed::U32(u32::MAX)), ("pmix.univ.size", Typed::U32(size))];
    put_pair(&mut out, "pmix.ssn.arr", &Typed::Array(session));
    for node in hosts.iter() {
        let ranks = job.ranks_on(*node);
        let peers: Vec<String> = ranks.iter().map(u32::to_string).collect();
        let peers = peers.join(",");
        let mut array = vec![
            ("pmix.hname", Typed::Text(name(node))),
            ("pmix.node.size", Typed::U32(ranks.len() as u32)),
            ("pmix.nodeid", Typed::U32(node.0)),
            ("pmix.lpeers", Typed::Text(&peers)),
            ("pmix.lldr", Typed::Rank(ranks.first().copied().unwrap_or_default())),
            ("pmix.local.size", Typed::U32(ranks.len() as u32)),
        ];
        if *node == own_node {
            array.push(("pmix.pmem", Typed::U64(around.memory)));
            // `PMIX_NODE_OVERSUBSCRIBED`.
            array.push(("pmix.ndosub", Typed::Bool(around.crowded)));
            let sets = around.cpu_sets().map(Typed::Texts);
            array.extend(sets.map(|sets| ("pmix.lcpus", sets)));
        }
        put_pair(&mut out, "pmix.node.arr", &Typed::Array(array));
    }
    let app = vec![
        ("pmix.appnum", Typed::U32(0)),
        ("pmix.app.size", Typed::U32(size)),
        ("pmix.aldr", Typed::Rank(0)),
        ("pmix.wdir", Typed::Text(&around.directory)),
        ("pmix.app.argv", Typed::Text(&around.command)),
    ];
    put_pair(&mut out, "pmix.app.arr", &Typed::Array(app));
    for rank in 0..size {
        let node = job.node_of(rank).unwrap_or_default();
        let local = job.local_rank(rank).unwrap_or_default() as u16;
        let mut blob = Vec::new();
        put_signed(&mut blob, 1);
        put_unsigned(&mut blob, u64::from(rank));
        put_pair(&mut blob, "pmix.lrank", &Typed::U16(local));
        put_pair(&mut blob, "pmix.nrank", &Typed::U16(local));
        put_pair(&mut blob, "pmix.appnum", &Typed::U32(0));
        put_pair(&mut blob, "pmix.grank", &Typed::Rank(rank));
        put_pair(&mut blob, "pmix.apprank", &Typed::Rank(rank));
        put_pair(&mut blob, "pmix.nodeid", &Typed::U32(node.0));
        put_pair(&mut blob, "pmix.hname", &Typed::Text(name(&node)));
        let topology = around.topology(local.into()).filter(|_| node == own_node);
        if let Some(topology) = topology {
            put_pair(&mut blob, "pmix.cpuset", &Typed::Text(&cpu_set(topology)));
            put_pair(&mut blob, "pmix.locstr", &Typed::Text(&locality(topology)));
            // No `pmix.numarank`: libpmix 4.2 does not know it, and then drops everything that
            // follows.
            put_pair(&mut blob, "pmix.pkgrank", &Typed::U16(around.package_rank(local.into())));
        }
        put_pair(&mut out, "pmix.pblob", &Typed::Bytes(blob));
    }
    out
}
