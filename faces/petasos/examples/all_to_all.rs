//! Every rank of a job calls every other with bulk data. No rank sends its address to another: the
//! addresses were assigned before the start.
//!
//! ```text
//! cargo build --examples && petasos run -n 4 target/debug/examples/all_to_all [KiB]
//! mpirun -n 4 target/debug/examples/all_to_all; mpiexec.hydra -n 4 target/debug/examples/all_to_all
//! ```

use petasos::{
    BulkHandle, Context, EngineConfig, EngineThread, fabric::Access, job, open_own, service,
};
use std::{error::Error, time::Instant};

#[service]
trait Exchange {
    /// Fetches the caller's data, and says how many bytes of it are as they should be.
    async fn take(&self, context: Context, from: u32, data: BulkHandle) -> Result<u64, String>;
}

struct Rank(u32);

/// What one rank has for another.
fn byte(from: u32, to: u32, at: u64) -> u8 {
    (u64::from(from) * 31 + u64::from(to) * 17 + at * 7) as u8
}

impl Exchange for Rank {
    async fn take(&self, context: Context, from: u32, data: BulkHandle) -> Result<u64, String> {
        let bulk = context.engine().open(&data).map_err(|error| error.to_string())?;
        let mut blocks = bulk.blocks(256 << 10, 4);
        let (mut bytes, mut right) = (vec![0; 256 << 10], 0);
        while let Some(block) = blocks.next().await {
            let block = block.map_err(|error| error.to_string())?;
            let bytes = &mut bytes[..block.len()];
            block.read(0, bytes);
            let as_it_should =
                |(at, b): &(usize, &u8)| **b == byte(from, self.0, block.offset + *at as u64);
            right += bytes.iter().enumerate().filter(as_it_should).count() as u64;
        }
        Ok(right)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let kib: u64 = std::env::args().nth(1).map_or(Ok(1024), |text| text.parse())?;
    let len = kib << 10;
    let job = job()?;
    let (rank, size) = (job.rank(), job.size());
    let start = Instant::now();
    let engine = EngineThread::start(open_own(job)?, EngineConfig::default(), move |engine| {
        Rank(rank).serve(engine, 0).expect("nothing else is served");
    })?;
    let peers = (0..size).filter(|peer| *peer != rank);
    let peers: Vec<_> =
        peers.map(|peer| Ok((peer, job.peer(peer)?))).collect::<Result<_, Box<dyn Error>>>()?;
    let calls = engine.handle().run(move |engine| async move {
        let mut right = 0;
        for (peer, address) in peers {
            let data: Vec<u8> = (0..len).map(|at| byte(rank, peer, at)).collect();
            let memory = engine.alloc(data.len().max(1)).map_err(|error| error.to_string())?;
            memory.write(0, &data);
            let all = memory.slice(0, data.len()).ok_or("the memory holds the data")?;
            let bulk = engine.bulk(all, Access::READ).map_err(|error| error.to_string())?;
            let exchange = ExchangeClient::new(&engine, &address);
            let taken = exchange.take(rank, bulk.handle()).await;
            right += taken.map_err(|error| error.to_string())??;
        }
        Ok::<u64, String>(right)
    });
    let right = calls.wait()??;
    let sent = u64::from(size - 1) * len;
    if right != sent {
        return Err(format!("rank {rank}: {right} of {sent} bytes arrived as they should").into());
    }
    // The others may still call: no rank leaves before all are done.
    job.fence()?;
    println!(
        "rank {rank} of {size}: {sent} bytes to {} peers in {:.2?}",
        size - 1,
        start.elapsed()
    );
    job.finalize()?;
    Ok(())
}
