//! A pipelined remote write, as in the Mercury paper (Soumagne et al., CLUSTER 2013): the client
//! lends a file's data, the server pulls it block by block and writes each block to its disk
//! while the next ones are on the way. The server's memory is bounded by the pipeline, however
//! large the file is.
//!
//! ```text
//! cargo run --release -p petasos --example remote_write FILE COPY [URL] [BLOCK KiB] [DEPTH]
//! ```

use petasos::{
    BulkHandle, Context, Engine, EngineConfig, EngineThread, OpenOptions, fabric::Access, open,
    service,
};
use std::{error::Error, fs::File, io::Read, os::unix::fs::FileExt, path::PathBuf, time::Instant};

#[service]
trait Store {
    /// Writes `data` to the store's file in blocks of `block` bytes, `depth` on the way.
    async fn write(
        &self,
        context: Context,
        data: BulkHandle,
        block: u64,
        depth: u32,
    ) -> Result<u64, String>;
}

struct Disk {
    path: PathBuf,
}

impl Disk {
    async fn pull(
        &self,
        context: &Context,
        data: &BulkHandle,
        block: usize,
        depth: usize,
    ) -> Result<u64, Box<dyn Error>> {
        // Under another name until it is whole: a failed transfer leaves the old file in place.
        let partial = self.path.with_extension("partial");
        let file = File::create(&partial)?;
        let bulk = context.engine().open(data)?;
        let mut blocks = bulk.blocks(block, depth);
        let mut bytes = vec![0; block];
        while let Some(block) = blocks.next().await {
            let block = block?;
            let bytes = &mut bytes[..block.len()];
            block.read(0, bytes);
            file.write_all_at(bytes, block.offset)?;
        }
        std::fs::rename(&partial, &self.path)?;
        Ok(bulk.len())
    }
}

impl Store for Disk {
    async fn write(
        &self,
        context: Context,
        data: BulkHandle,
        block: u64,
        depth: u32,
    ) -> Result<u64, String> {
        // What a caller asks for is bounded: this is the server's memory.
        let block = block.clamp(4096, 16 << 20) as usize;
        let depth = depth.clamp(1, 16) as usize;
        self.pull(&context, &data, block, depth).await.map_err(|error| error.to_string())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [from, to, rest @ ..] = &arguments[..] else {
        return Err("usage: remote_write FILE COPY [URL] [BLOCK KiB] [DEPTH]".into());
    };
    let url = rest.first().map_or("shm://*", String::as_str);
    let block: u64 = rest.get(1).map_or(Ok(1024), |text| text.parse())?;
    let depth: u32 = rest.get(2).map_or(Ok(4), |text| text.parse())?;

    let store = Disk { path: to.into() };
    let options = OpenOptions::default();
    let server = EngineThread::start(open(url, &options)?, EngineConfig::default(), |engine| {
        store.serve(engine, 0).expect("nothing else is served");
    })?;
    let engine = Engine::new(open(url, &options)?, EngineConfig::default());

    // From the transport's own memory, where it has some: the fastest way.
    let mut file = File::open(from)?;
    let len = file.metadata()?.len() as usize;
    let memory = engine.alloc(len.max(1))?;
    let mut piece = vec![0; 1 << 20];
    let mut at = 0;
    while at < len {
        let count = file.read(&mut piece)?;
        if count == 0 {
            return Err(format!("{from} became shorter while it was read").into());
        }
        let count = count.min(len - at);
        memory.write(at, &piece[..count]);
        at += count;
    }
    let data = memory.slice(0, len).ok_or("the memory holds the file")?;
    let bulk = engine.bulk(data, Access::READ)?;

    let store = StoreClient::new(&engine, server.handle().address());
    let start = Instant::now();
    let written = engine.block_on(store.write(bulk.handle(), block << 10, depth))??;
    let took = start.elapsed();
    let rate = written as f64 / took.as_secs_f64() / 1e9;
    println!(
        "{written} bytes in {took:.2?}: {rate:.2} GB/s, in blocks of {block} KiB, {depth} deep"
    );
    Ok(())
}
