//! The plots that a bench can have, and where a figure stands in them.

use serde::Serialize;

/// A kind of plot: what it shows against what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Plot {
    Latency,
    Percentiles,
    Rate,
    UnderLoad,
    Bandwidth,
    Pipeline,
    Overlap,
    Clients,
    ClientsBulk,
    Channels,
    ChannelBandwidth,
    PeerBandwidth,
    ForwardBlocks,
    ForwardClients,
    ForwardSmall,
    LaunchStart,
    LaunchFence,
    LaunchGet,
    WireUp,
    Simulated,
    SimulatedBytes,
}

/// Where a figure stands.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct At {
    pub plot: Plot,
    /// Which of several beside each other: `shm, spinning`.
    pub panel: String,
    /// Which line.
    pub series: String,
    /// Bytes, or a number of calls, clients or blocks.
    pub x: f64,
}

/// What is along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Along {
    Bytes,
    Count,
}

impl Along {
    /// A value in words.
    pub fn show(self, x: f64) -> String {
        match self {
            Along::Bytes => crate::output::size(x as u64),
            Along::Count => format!("{x}"),
        }
    }
}

/// The words of a plot.
pub struct Labels {
    pub title: &'static str,
    /// What can be read off it.
    pub about: &'static str,
    pub x: &'static str,
    pub along: Along,
    pub y: &'static str,
    pub unit: &'static str,
}

impl Plot {
    pub const ALL: [Plot; 21] = [
        Plot::Latency,
        Plot::Percentiles,
        Plot::Rate,
        Plot::UnderLoad,
        Plot::Bandwidth,
        Plot::Pipeline,
        Plot::Overlap,
        Plot::Clients,
        Plot::ClientsBulk,
        Plot::Channels,
        Plot::ChannelBandwidth,
        Plot::PeerBandwidth,
        Plot::ForwardBlocks,
        Plot::ForwardClients,
        Plot::ForwardSmall,
        Plot::LaunchStart,
        Plot::LaunchFence,
        Plot::LaunchGet,
        Plot::WireUp,
        Plot::Simulated,
        Plot::SimulatedBytes,
    ];

    /// Those of jobs.
    pub const LAUNCH: [Plot; 6] = [
        Plot::LaunchStart,
        Plot::LaunchFence,
        Plot::LaunchGet,
        Plot::WireUp,
        Plot::Simulated,
        Plot::SimulatedBytes,
    ];

    /// The limit beside each series is its own, and looks like it.
    pub fn limits_go_by_series(self) -> bool {
        matches!(self, Plot::Percentiles | Plot::Rate | Plot::Overlap)
    }

    pub fn labels(self) -> Labels {
        use Along::{Bytes, Count};
        let labels =
            |title, about, (x, along), (y, unit)| Labels { title, about, x, along, y, unit };
        match self {
            Plot::Latency => labels(
                "Latency by size",
                "One call after the other, with so many bytes there and the same bytes back; the \
                 machine's limit is a message of that size between two bare threads or processes.",
                ("bytes each way", Bytes),
                ("time of a call", "ns"),
            ),
            Plot::Percentiles => labels(
                "Percentiles by size",
                "Of single calls, one after the other; dashed, in the same colour, the same \
                 percentile of the machine's own round trips in the same run.",
                ("bytes each way", Bytes),
                ("time of a call", "ns"),
            ),
            Plot::Rate => labels(
                "Rate by calls in flight",
                "One client and one server; the machine's limit is that of round trips one at a \
                 time.",
                ("calls in flight", Count),
                ("calls a second", "calls/s"),
            ),
            Plot::UnderLoad => labels(
                "Percentiles by calls in flight",
                "64-byte echoes, each timed from its begin to its result.",
                ("calls in flight", Count),
                ("time of a call", "ns"),
            ),
            Plot::Bandwidth => labels(
                "Bandwidth by size",
                "One transfer in flight, pulled or pushed by the server.",
                ("bytes of a transfer", Bytes),
                ("bandwidth", "GB/s"),
            ),
            Plot::Pipeline => labels(
                "Pipelined pull by block size and depth",
                "The target pulls a large buffer in blocks, so many at a time; the machine's limit \
                 moves all of it at once.",
                ("bytes of a block", Bytes),
                ("bandwidth", "GB/s"),
            ),
            Plot::Overlap => labels(
                "Moving and working at once",
                "Total time of a pipelined pull with work on each block; dashed, the longer of \
                 moving alone and working alone, which is all that it would take if both were \
                 perfectly hidden behind each other.",
                ("blocks in flight", Count),
                ("total time", "ns"),
            ),
            Plot::Clients => labels(
                "Rate by clients",
                "Null calls, one in flight for each client; all together, against bare messages of \
                 as many clients.",
                ("clients", Count),
                ("calls a second", "calls/s"),
            ),
            Plot::ClientsBulk => labels(
                "Total bandwidth by clients",
                "Each client has 1 MiB pulled from it, again and again; all together, against the \
                 bandwidth from point to point.",
                ("clients", Count),
                ("bandwidth", "GB/s"),
            ),
            Plot::Channels => labels(
                "Channels: latency by size",
                "Each channel bare, through the fabric contract, and under RPC, against the bare \
                 device. Messages: there and back. Remote access: one get, or one call in which \
                 the server pulls.",
                ("bytes", Bytes),
                ("time", "ns"),
            ),
            Plot::ChannelBandwidth => labels(
                "Channels: bandwidth by size",
                "Many messages one way, or several gets in flight, against a copy of that size by \
                 the bare device.",
                ("bytes", Bytes),
                ("bandwidth", "GB/s"),
            ),
            Plot::PeerBandwidth => labels(
                "Large arguments",
                "Calls with so many bytes there, and next to nothing back: ours pulled by the \
                 server, others' as they do it.",
                ("bytes of the argument", Bytes),
                ("bandwidth", "GB/s"),
            ),
            Plot::ForwardBlocks => labels(
                "Files through mounts, by block size",
                "One process that writes or reads a file in blocks of that size; the machine's limit \
                 is the same in the local file system.",
                ("bytes of a block", Bytes),
                ("bandwidth", "GB/s"),
            ),
            Plot::ForwardClients => labels(
                "Large files by clients",
                "So many processes at once, each with files of its own; all together.",
                ("clients", Count),
                ("bandwidth", "GB/s"),
            ),
            Plot::ForwardSmall => labels(
                "Small files by clients",
                "So many processes at once, each with a part of the files; all together.",
                ("clients", Count),
                ("files a second", "files/s"),
            ),
            Plot::LaunchStart => labels(
                "Jobs that do nothing",
                "From the start of the launcher to its end; the machine's limit is as many processes, \
                 started and waited for.",
                ("ranks", Count),
                ("time", "ns"),
            ),
            Plot::LaunchFence => labels(
                "Fences",
                "All ranks of a job on one machine come together; the machine's limit is a byte of each \
                 over a Unix socket, and a byte back when all have come.",
                ("ranks", Count),
                ("time of a fence", "ns"),
            ),
            Plot::LaunchGet => labels(
                "First gets",
                "Rank 0 asks for a key of each other rank for the first time; the machine's limit is a \
                 byte over a Unix socket, and one back.",
                ("ranks", Count),
                ("time of a get", "ns"),
            ),
            Plot::WireUp => labels(
                "Until a process has its neighbours' addresses",
                "They were assigned before the start, or are asked for one by one, or a fence spreads \
                 all of them.",
                ("ranks", Count),
                ("time", "ns"),
            ),
            Plot::Simulated => labels(
                "Until all have their neighbours' addresses, simulated",
                "The engines of real daemons in virtual time, from the start of the last process on.",
                ("nodes", Count),
                ("time", "ns"),
            ),
            Plot::SimulatedBytes => labels(
                "What the daemons move for that, simulated",
                "Sent and taken by a daemon, until the last process has its neighbours' addresses.",
                ("nodes", Count),
                ("bytes", "B"),
            ),
        }
    }
}
