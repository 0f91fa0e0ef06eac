//! Memories of a plan: which kind of RAM each takes and how many blocks.

use serde::Serialize;

/// What a memory is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MemoryKind {
    /// 18 and 36 Kib block RAM.
    Block,
    /// 288 Kib UltraRAM: 4096 x 72.
    Ultra,
    /// LUT RAM (or LUT ROM).
    Distributed,
}

/// Ports of one bank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum MemoryPorts {
    /// One read port and one write port.
    #[serde(rename = "1R1W")]
    Simple,
    /// A read port and a read-write port.
    #[serde(rename = "1R+1RW")]
    True,
    /// Read only, one port.
    #[serde(rename = "1R")]
    Rom,
    /// Read only, two ports.
    #[serde(rename = "2R")]
    DualRom,
}

/// One line of the buffer list.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemoryLine {
    pub name: String,
    /// Words that carry data, over all banks.
    pub words: usize,
    /// Bits of a word.
    pub width: usize,
    /// Words of each bank.
    pub depth: usize,
    pub banks: usize,
    pub ports: MemoryPorts,
    pub kind: MemoryKind,
    /// Blocks of 36 Kib (halves are 18 Kib blocks), or UltraRAMs; 0 for LUT RAM.
    pub blocks: f64,
    /// Look-up tables of LUT RAM.
    pub luts: usize,
}

/// Shapes of an 18 Kib block, both ports.
const RAMB18: [(usize, usize); 5] = [(1024, 18), (2048, 9), (4096, 4), (8192, 2), (16384, 1)];
/// Shapes of a 36 Kib block, both ports.
const RAMB36: [(usize, usize); 6] = [
    (1024, 36),
    (2048, 18),
    (4096, 9),
    (8192, 4),
    (16384, 2),
    (32768, 1),
];

fn tiles(depth: usize, width: usize, shape: (usize, usize)) -> usize {
    depth.div_ceil(shape.0) * width.div_ceil(shape.1)
}

/// 18 Kib blocks of one bank: the cheapest single shape. With one read and one write port a block is also 512 x 36
/// (18 Kib) or 512 x 72 (36 Kib).
pub fn block_halves(depth: usize, width: usize, ports: MemoryPorts) -> usize {
    let small = RAMB18.iter().map(|&s| tiles(depth, width, s));
    let large = RAMB36.iter().map(|&s| 2 * tiles(depth, width, s));
    let both = small.chain(large).min().unwrap_or(0);
    match ports {
        MemoryPorts::True | MemoryPorts::DualRom => both,
        MemoryPorts::Simple | MemoryPorts::Rom => both
            .min(tiles(depth, width, (512, 36)))
            .min(2 * tiles(depth, width, (512, 72))),
    }
}

/// Widths of the memories that a weight bank of `width` bits is split into, lowest bits first: two columns where
/// they take fewer blocks than one (24 bits as 18 + 6), else one.
pub fn weight_columns(depth: usize, width: usize) -> Vec<usize> {
    let cost = |w: usize| block_halves(depth, w, MemoryPorts::True);
    let whole = cost(width);
    let low = (1..width).min_by_key(|&w| (cost(w) + cost(width - w), w));
    match low {
        Some(w) if cost(w) + cost(width - w) < whole => vec![w, width - w],
        _ => vec![width],
    }
}

/// UltraRAMs of one bank.
pub fn ultra_blocks(depth: usize, width: usize) -> usize {
    tiles(depth, width, (4096, 72))
}

/// Look-up tables of one bank of LUT RAM with one read and one write port: RAM32M16 (14 bits in 8) up to 32 words,
/// RAM64M8 (7 bits in 8) above, and the multiplexers of deeper ones.
pub fn distributed_luts(depth: usize, width: usize) -> usize {
    if depth <= 32 {
        return 8 * width.div_ceil(14);
    }
    let rows = depth.div_ceil(64);
    let select = if rows > 1 {
        width * rows.div_ceil(4)
    } else {
        0
    };
    8 * width.div_ceil(7) * rows + select
}

impl MemoryLine {
    /// A memory of `banks` equal banks.
    pub fn new(
        name: &str,
        words: usize,
        (depth, width): (usize, usize),
        banks: usize,
        ports: MemoryPorts,
        kind: MemoryKind,
    ) -> Self {
        let (blocks, luts) = match kind {
            MemoryKind::Block => ((block_halves(depth, width, ports) * banks) as f64 / 2.0, 0),
            MemoryKind::Ultra => ((ultra_blocks(depth, width) * banks) as f64, 0),
            MemoryKind::Distributed => (0.0, distributed_luts(depth, width) * banks),
        };
        Self {
            name: name.to_string(),
            words,
            width,
            depth,
            banks,
            ports,
            kind,
            blocks,
            luts,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_of_the_full_size_design() {
        use MemoryPorts::*;
        // A 24-bit weight bank of 7,612 words: three 4K x 9 columns, two deep.
        assert_eq!(block_halves(7612, 24, True), 12);
        // BF16 moments side by side, four banks' worth.
        assert_eq!(block_halves(30448, 32, Simple), 60);
        // In two columns half a block less.
        let columns = weight_columns(7612, 24);
        assert_eq!(columns, [6, 18]);
        let halves = columns.iter().map(|&w| block_halves(7612, w, True));
        assert_eq!(halves.sum::<usize>(), 11);
        assert_eq!(weight_columns(7612, 16), [16]);
        assert_eq!(block_halves(512, 32, Simple), 1);
        assert_eq!(block_halves(512, 32, True), 2);
        assert_eq!(block_halves(513, 32, Simple), 2);
        assert_eq!(ultra_blocks(30448, 32), 8);
    }

    #[test]
    fn lut_ram_follows_the_primitives() {
        assert_eq!(distributed_luts(32, 32), 24);
        assert_eq!(distributed_luts(64, 32), 40);
    }
}
