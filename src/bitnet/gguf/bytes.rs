//! A cheap, shareable range of bytes: owned or part of a memory map.

use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::Arc;

use crate::bitnet::{Error, Result};

#[derive(Debug)]
enum Source {
    Owned(Vec<u8>),
    Mapped(memmap2::Mmap),
}

/// Bytes of a file or of memory; clones and sub-ranges share the storage.
#[derive(Debug, Clone)]
pub struct Bytes {
    source: Arc<Source>,
    range: Range<usize>,
}

impl Bytes {
    /// Maps a file. The file must not be changed by others while it is open.
    pub fn map(path: &Path) -> Result<Self> {
        // Asked before opening: opening a pipe would wait for its writer.
        let kind = std::fs::metadata(path).map_err(|e| Error::io(path, e))?;
        if !kind.is_file() && !kind.is_dir() {
            let text = "it is a device or a pipe; a regular file is needed, which can be mapped";
            return Err(Error::io(path, std::io::Error::other(text)));
        }
        let file = std::fs::File::open(path).map_err(|e| Error::io(path, e))?;
        let found = file.metadata().map_err(|e| Error::io(path, e))?;
        if found.is_dir() {
            return Err(Error::io(path, std::io::ErrorKind::IsADirectory.into()));
        }
        if found.len() == 0 {
            return Ok(Self::from(Vec::new()));
        }
        // SAFETY: the map is read only; a concurrent writer is excluded by the contract above.
        let map = unsafe { memmap2::Mmap::map(&file) }.map_err(|e| Error::io(path, e))?;
        let range = 0..map.len();
        Ok(Self {
            source: Arc::new(Source::Mapped(map)),
            range,
        })
    }

    /// The sub-range `range` of these bytes, or `None` when it does not lie inside.
    pub fn slice(&self, range: Range<usize>) -> Option<Self> {
        if range.start > range.end || range.end > self.range.len() {
            return None;
        }
        let start = self.range.start + range.start;
        Some(Self {
            source: Arc::clone(&self.source),
            range: start..start + range.len(),
        })
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        let range = 0..bytes.len();
        Self {
            source: Arc::new(Source::Owned(bytes)),
            range,
        }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let all: &[u8] = match &*self.source {
            Source::Owned(bytes) => bytes,
            Source::Mapped(map) => map,
        };
        &all[self.range.clone()]
    }
}
