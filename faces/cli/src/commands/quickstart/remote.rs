//! The same with a server on another host: `petasos serve --files` there.

use super::{copy, directory::ServerDirectory, files, source::Source, stage::Stage};
use crate::{
    client,
    exit::{Code, Failure, Outcome},
    figures::Row,
    limits::Plan,
    output,
    pair::ServerConnection,
    progress::Progress,
    service::Direction,
    waiting::Waiting,
};
use petasos::{Transport, fabric::Address, wire::Encoding};
use std::{path::Path, time::Duration};

/// How long the server may take to be there.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often transfers are measured.
const ROUNDS: u32 = 3;

/// The server.
pub(super) struct RemoteServer<'a> {
    pub(super) transport: &'static Transport,
    pub(super) url: &'a Address,
    pub(super) secret: Option<&'a Path>,
}

impl RemoteServer<'_> {
    /// Everything with that server. What the machine can do is not shown beside it: neither of the
    /// two could tell what lies between them.
    pub(super) fn all(
        &self,
        plan: &Plan,
        source: &Source,
        stage: Option<&Stage>,
        copied: copy::Rates,
        bulk: usize,
    ) -> Outcome<Vec<Row>> {
        let progress = Progress::steps(2);
        progress.step(format!("calls to {}", self.url));
        // Adaptive: on a network the latency is so long that a core is better left to its driver.
        let config = Waiting::Adaptive.config();
        let engine = client::engine_over(petasos::open, self.url, self.secret, config, PATIENCE)?;
        let connection = ServerConnection { engine, address: self.url.clone() };
        let directory = connection.engine.block_on(ServerDirectory::begin(&connection))?;
        let mut rows = self.calls(&connection, plan)?;
        progress.step(format!("bulk data, {}", output::size(bulk as u64)));
        rows.extend(self.memory(&connection, plan, bulk)?);
        drop(progress);
        let done = files(&connection, &directory, self.transport.scheme, source, stage, copied);
        let emptied = connection.engine.block_on(directory.end());
        // What failed first is what is said.
        rows.extend(done?);
        emptied.map(|()| rows)
    }

    fn calls(&self, connection: &ServerConnection, plan: &Plan) -> Outcome<Vec<Row>> {
        let null = connection.null_call(plan, Encoding::Native)?;
        let row = |what: &str, time| {
            let row = Row::new(self.transport.scheme, what, (time, "ns"), None, &null.how);
            row.doubted(null.doubt.as_deref())
        };
        Ok(vec![row("null call, median", null.median), row("null call, p99", null.p99)])
    }

    /// Bulk data between memories; what came back is compared once.
    fn memory(
        &self,
        connection: &ServerConnection,
        plan: &Plan,
        bytes: usize,
    ) -> Outcome<[Row; 2]> {
        let plan = Plan { time: plan.time / ROUNDS, ..*plan };
        let memory = connection.memory(bytes, false)?;
        connection.check(&memory, bytes)?;
        let row = |what: &str, way| {
            let rates =
                (0..ROUNDS).map(|_| Ok(connection.transfers(&plan, way, &memory, bytes)?.median));
            let mut rates = rates.collect::<Outcome<Vec<_>>>()?;
            rates.sort_by(f64::total_cmp);
            let what = format!("{what}, {}", output::size(bytes as u64));
            let how = "one transfer at a time, memory used again";
            let value = (rates[rates.len() / 2], "GB/s");
            Ok::<_, Failure>(Row::new(self.transport.scheme, what, value, None, how))
        };
        Ok([row("memory to server", Direction::Pull)?, row("server to memory", Direction::Push)?])
    }
}

/// The transport of the server's URL.
pub(super) fn transport(url: &Address) -> Outcome<&'static Transport> {
    if url.scheme() == "self" {
        let text = format!("{url}: self:// reaches no other process");
        return Err(Failure::new(Code::Usage, text).advise("the URL that `petasos serve` prints"));
    }
    let found = client::transports(&[url.scheme().to_owned()])?;
    found.first().copied().ok_or_else(|| Failure::new(Code::Usage, format!("{url}: no transport")))
}
