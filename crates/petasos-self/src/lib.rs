//! The fabric inside one process
