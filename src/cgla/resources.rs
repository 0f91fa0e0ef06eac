//! What a build needs of a device, before synthesis.
//!
//! Look-up tables and flip-flops are counts of Yosys 0.70 (`synth_xilinx -family xcup`) of each
//! module by itself; block RAM follows from the shape of the memories. `docs/cgla.md` has the
//! synthesised totals beside this estimate.

use serde::Serialize;

use super::{ArrayConfig, LaneSign};

/// Counts of primitives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Resources {
    /// Look-up tables: logic, LUT RAM and shift registers.
    pub lut: u64,
    pub ff: u64,
    pub bram36: u64,
    pub uram: u64,
    pub dsp: u64,
}

/// LUT and FF of one module.
struct Count(u64, u64);

/// A row with a local memory of 512 words; lane 0 signed or either.
const ROW_SIGNED: Count = Count(2345, 979);
const ROW_EITHER: Count = Count(2385, 979);
/// Reader, loader, sequencer, store and glue of a group.
const GROUP: Count = Count(1095, 1119);
/// Registers and launch control, and what each group adds to them and to the write master.
const TOP: Count = Count(501, 298);
const TOP_PER_GROUP: Count = Count(355, 212);

/// 36-Kib blocks of one half of a local memory: 64 bits, two addresses, so 36 bits a block at
/// up to 1,024 words, 18 at 2,048, 9 at 4,096.
fn half_blocks(words: u32) -> u64 {
    match words {
        0..=1024 => 2,
        1025..=2048 => 4,
        _ => 8,
    }
}

/// The estimate for a build.
pub fn resources(config: &ArrayConfig) -> Resources {
    let (rows, groups) = (u64::from(config.rows), u64::from(config.ports));
    let row = match config.lane_sign {
        LaneSign::Signed => ROW_SIGNED,
        LaneSign::UnsignedLo => ROW_EITHER,
    };
    let per_group = Count(GROUP.0 + TOP_PER_GROUP.0, GROUP.1 + TOP_PER_GROUP.1);
    Resources {
        lut: rows * row.0 + groups * per_group.0 + TOP.0,
        ff: rows * row.1 + groups * per_group.1 + TOP.1,
        bram36: rows * 2 * half_blocks(config.lmm_words),
        uram: 0,
        dsp: 0,
    }
}

/// The most rows on the same ports that stay within `available`, if any do.
pub fn most_rows(config: &ArrayConfig, available: &Resources, lut_share: f64) -> Option<u32> {
    let step = 2 * config.ports as usize;
    (1..=128u32)
        .rev()
        .filter(|rows| (*rows as usize).is_multiple_of(step))
        .find(|&rows| {
            shortfall(
                &resources(&ArrayConfig { rows, ..*config }),
                available,
                lut_share,
            )
            .is_empty()
        })
}

/// Name, need and limit of everything that is short. Only `lut_share` of the look-up tables
/// counts: beyond it routing fails.
pub fn shortfall(
    used: &Resources,
    available: &Resources,
    lut_share: f64,
) -> Vec<(&'static str, u64, u64)> {
    [
        ("LUT", used.lut, (available.lut as f64 * lut_share) as u64),
        ("FF", used.ff, available.ff),
        ("BRAM36", used.bram36, available.bram36),
        ("URAM", used.uram, available.uram),
        ("DSP", used.dsp, available.dsp),
    ]
    .into_iter()
    .filter(|(_, used, limit)| used > limit)
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The synthesised total of the default build, see docs/cgla.md.
    #[test]
    fn the_default_build_is_estimated_as_it_was_synthesised() {
        let used = resources(&ArrayConfig::default());
        assert_eq!((used.lut, used.bram36, used.dsp), (158_941, 256, 0));
        assert!(used.ff.abs_diff(68_278) < 100, "{}", used.ff);
    }

    #[test]
    fn more_rows_need_more_and_the_limit_is_found() {
        let config = ArrayConfig::default();
        let available = Resources {
            lut: 117_120,
            ff: 234_240,
            bram36: 144,
            uram: 64,
            dsp: 1248,
        };
        let short = shortfall(&resources(&config), &available, 0.85);
        let names: Vec<&str> = short.iter().map(|s| s.0).collect();
        assert_eq!(names, ["LUT", "BRAM36"]);
        let rows = most_rows(&config, &available, 0.85).unwrap();
        assert!(rows < 64 && rows.is_multiple_of(8), "{rows}");
        let next = ArrayConfig {
            rows: rows + 8,
            ..config
        };
        assert!(!shortfall(&resources(&next), &available, 0.85).is_empty());
        let nothing = Resources::default();
        assert_eq!(most_rows(&config, &nothing, 0.85), None);
    }
}
