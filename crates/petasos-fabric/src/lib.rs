//! The contract between protocols and transports: endpoints, messages, memory, completions
