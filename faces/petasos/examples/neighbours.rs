//! What each rank of a job knows of the others. It stands in the guide to jobs.
//!
//! ```text
//! cargo build --example neighbours
//! petasos run -n 4 target/debug/examples/neighbours
//! ```

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let job = petasos::job()?;
    println!("{} of {}", job.rank(), job.size());
    let endpoint = petasos::open_own(job)?; // where the others expect this rank
    let neighbour = job.peer((job.rank() + 1) % job.size())?; // an address, ready to call
    println!("{} calls {neighbour}", endpoint.address());
    job.fence()?;
    job.finalize()?;
    Ok(())
}
