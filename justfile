# The words that people use; `just --list` shows them. What each does is in CONTRIBUTING.md.

# What clippy and rustfmt say
check:
    cargo fmt --all --check
    cargo clippy --locked --workspace --all-targets --all-features -- -D warnings

# All tests, or those of some crates: `just test -p petasos-rpc`
test *WHAT="--workspace":
    cargo test --locked {{WHAT}}

# Us beside the machine and other programs, in the profile for figures: `just bench null --quick`
bench *TOPICS:
    cargo build --locked --profile dist -p petasos-cli -p petasos-bench
    target/dist/petasos bench {{TOPICS}}

# The reference, without the crates of others
docs:
    RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --all-features

# The package for Python, with the oldest and the newest Python that there are
python *WHAT="--test":
    scripts/python {{WHAT}}

# All that must pass before a change lands
ci:
    .ci/run
