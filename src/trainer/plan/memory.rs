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
    /// Look-up tables: LUT RAM, LUT ROM, or the multiplexers behind blocks.
    pub luts: usize,
}

/// Widths of a block at its ports. Each is a ninth, an eighteenth ... of the widest, parity bits apart.
const WIDTHS: [usize; 7] = [1, 2, 4, 9, 18, 36, 72];
/// What an 18 Kib and a 36 Kib block cost, one bit of a multiplexer behind them being a half.
const COSTS: [f64; 2] = [129.0, 257.0];

impl MemoryPorts {
    /// Number of read and of write ports.
    fn counts(self) -> (usize, usize) {
        match self {
            MemoryPorts::Simple => (1, 1),
            MemoryPorts::True => (2, 1),
            MemoryPorts::Rom => (1, 0),
            MemoryPorts::DualRom => (2, 0),
        }
    }
}

/// How one bank is put together from blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// 18 Kib blocks; a 36 Kib block is two.
    pub halves: usize,
    /// Words of one block's depth that the bank is deep, rounded up: the inputs of its output multiplexer.
    pub deep: usize,
}

/// The blocks of one bank as Yosys 0.70 chooses them (`memory_libmap` with its description of these parts): the cheapest
/// shape, counting multiplexers and write decoders of deep banks beside the blocks. With one read and one write port
/// a block is twice as wide as with two ports that do both. Written words fill whole bytes of 9 bits, or of the port's
/// width where that is less; the rows of a deep bank share blocks where their bytes leave room.
pub fn block_geometry(depth: usize, width: usize, ports: MemoryPorts) -> Geometry {
    let (reads, writes) = ports.counts();
    let both = matches!(ports, MemoryPorts::True | MemoryPorts::DualRom);
    let mut best: Option<(f64, Geometry)> = None;
    for (large, cost) in COSTS.into_iter().enumerate() {
        let widest = 5 + large - usize::from(both);
        // Costs of shapes of one block size are compared as whole numbers.
        let mut own: Option<(f64, Geometry)> = None;
        for (n, &port) in WIDTHS.iter().enumerate().take(widest + 1) {
            let words = (16384 << large) >> n;
            let deep = depth.div_ceil(words);
            let byte = if writes == 0 { 1 } else { port.min(9) };
            let blocks = (deep * width.next_multiple_of(byte)).div_ceil(port);
            let multiplexers = reads * (deep - 1) * width;
            let decoders = if deep > 1 { writes * deep } else { 0 };
            let sum = cost * blocks as f64 + 0.5 * (multiplexers + decoders) as f64;
            if own.is_none_or(|o| sum < o.0.trunc()) {
                let halves = blocks << large;
                own = Some((sum, Geometry { halves, deep }));
            }
        }
        best = match (best, own) {
            (Some(b), Some(o)) if b.0 <= o.0 => Some(b),
            (_, own) => own,
        };
    }
    best.map_or(Geometry { halves: 0, deep: 0 }, |b| b.1)
}

/// 18 Kib blocks of one bank.
pub fn block_halves(depth: usize, width: usize, ports: MemoryPorts) -> usize {
    block_geometry(depth, width, ports).halves
}

/// Look-up tables behind the blocks of one bank: an output multiplexer per read port (4:1 in one LUT, so about half a LUT
/// per bit and input), and the decoder of the rows.
fn block_luts(depth: usize, width: usize, ports: MemoryPorts) -> usize {
    let deep = block_geometry(depth, width, ports).deep;
    match deep {
        0 | 1 => 0,
        _ => ports.counts().0 * width * (deep - 1).div_ceil(2) + deep,
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

/// UltraRAMs of one bank: 4096 words of 72 bits. Words take whole bytes, of 8 or of 9 bits, and as many rows of a deep
/// bank stand side by side as fit; the byte write enables keep them apart.
pub fn ultra_blocks(depth: usize, width: usize) -> usize {
    let deep = depth.div_ceil(4096);
    let with = |byte: usize| (deep * width.next_multiple_of(byte)).div_ceil(72);
    with(8).min(with(9))
}

/// Look-up tables behind the UltraRAMs of one bank.
fn ultra_luts(depth: usize, width: usize) -> usize {
    let deep = depth.div_ceil(4096);
    match deep {
        0 | 1 => 0,
        _ => width * (deep - 1).div_ceil(4) + deep,
    }
}

/// Look-up tables of one bank that is LUT RAM, with one read and one write port: RAM32M16 (14 bits in 8) up to 32 words,
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

/// Look-up tables of one bank that is LUT ROM: 64 words a LUT, and multiplexers. Contents decide how many of them fold
/// away; this is the case where none does.
pub fn rom_luts(depth: usize, width: usize) -> usize {
    let rows = depth.div_ceil(64);
    width * (rows + rows.saturating_sub(1).div_ceil(3))
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
            MemoryKind::Block => (
                block_halves(depth, width, ports) as f64 / 2.0,
                block_luts(depth, width, ports),
            ),
            MemoryKind::Ultra => (ultra_blocks(depth, width) as f64, ultra_luts(depth, width)),
            MemoryKind::Distributed => match ports.counts() {
                (_, 0) => (0.0, rom_luts(depth, width)),
                _ => (0.0, distributed_luts(depth, width)),
            },
        };
        let (blocks, luts) = (blocks * banks as f64, luts * banks);
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
        // In two columns half a block less.
        let columns = weight_columns(7612, 24);
        assert_eq!(columns, [6, 18]);
        let halves = columns.iter().map(|&w| block_halves(7612, w, True));
        assert_eq!(halves.sum::<usize>(), 11);
        assert_eq!(weight_columns(7612, 16), [16]);
        assert_eq!(block_halves(512, 32, Simple), 1);
        assert_eq!(block_halves(512, 32, True), 2);
        assert_eq!(block_halves(513, 32, Simple), 2);
    }

    /// Blocks that Yosys 0.70 made of emitted banks (`synth_xilinx -family xcup`).
    #[test]
    fn geometry_is_what_the_synthesiser_chooses() {
        use MemoryPorts::*;
        for (depth, width, ports, halves) in [
            // Deep banks of moments: narrower blocks save multiplexers, at 64 bits even for two blocks more.
            (83732, 32, Simple, 164),
            (27396, 64, Simple, 112),
            // Three half blocks of 512 words, and a bank that fills two whole ones.
            (1404, 32, Simple, 3),
            (1984, 32, Simple, 4),
            (1010, 32, Simple, 2),
            (484, 32, Simple, 1),
            // Columns of a weight bank.
            (7612, 6, True, 3),
            (7612, 18, True, 8),
            (3616, 24, True, 6),
            (1522, 16, True, 2),
            // Tables: exponential and error function, logarithm.
            (1024, 36, DualRom, 2),
            (256, 41, Rom, 2),
            (264, 32, Rom, 1),
        ] {
            assert_eq!(
                block_halves(depth, width, ports),
                halves,
                "{depth} x {width}"
            );
        }
        // Two words of 32 bits side by side.
        assert_eq!(ultra_blocks(14464, 32), 2);
        assert_eq!(ultra_blocks(30316, 32), 4);
        assert_eq!(ultra_blocks(4096, 64), 1);
    }

    #[test]
    fn lut_ram_follows_the_primitives() {
        assert_eq!(distributed_luts(32, 32), 24);
        assert_eq!(distributed_luts(64, 32), 40);
    }
}
