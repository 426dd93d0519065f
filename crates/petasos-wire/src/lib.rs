//! Encodings and checked decoding: native and XDR, headers, checksums
