//! The conformance suite of the fabric contract
