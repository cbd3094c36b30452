"""The journal: record format, segments, recovery, compaction. Pure: it plans bytes, `io/disk` writes them."""
