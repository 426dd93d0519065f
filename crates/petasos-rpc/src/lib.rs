//! Remote procedure calls with bulk data over any fabric
