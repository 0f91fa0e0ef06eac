//! Parameters of a build of the array.

use super::{Error, Result};

/// How the low fragment of an int8 activation is multiplied.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    clap::ValueEnum,
    serde::Serialize,
    serde::Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum LaneSign {
    /// Both fragments signed int4: `lo = -8..7`, `hi = (a - lo) / 16`; 120 to 127 wrap to
    /// `hi = -8` and are corrected by `+256 * w` on the host.
    Signed,
    /// Lane 0 may take its activation unsigned: `lo = 0..15`, `hi = a >> 4`, no correction.
    #[default]
    UnsignedLo,
}

/// One build: everything that changes the RTL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArrayConfig {
    /// Rows (processing elements) of the linear array.
    pub rows: u32,
    /// Memory read ports; each feeds one group of `rows / ports` rows.
    pub ports: u32,
    /// 64-bit words in each of the two halves of a row's local memory.
    pub lmm_words: u32,
    /// Lane signedness.
    pub lane_sign: LaneSign,
}

impl Default for ArrayConfig {
    fn default() -> Self {
        Self {
            rows: 64,
            ports: 4,
            lmm_words: 512,
            lane_sign: LaneSign::UnsignedLo,
        }
    }
}

impl ArrayConfig {
    /// Checks the ranges that the RTL and its instruction encoding hold.
    pub fn check(&self) -> Result<()> {
        let refuse = |what: String| Err(Error::Config(what));
        if !(1..=4).contains(&self.ports) {
            return refuse(format!("{} ports; accepted: 1 to 4", self.ports));
        }
        if self.rows == 0 || !self.rows.is_multiple_of(2 * self.ports) || self.rows > 128 {
            return refuse(format!(
                "{} rows on {} ports; accepted: up to 128, a multiple of {}",
                self.rows,
                self.ports,
                2 * self.ports
            ));
        }
        if !self.lmm_words.is_power_of_two() || !(64..=4096).contains(&self.lmm_words) {
            return refuse(format!(
                "{} LMM words per half; accepted: a power of two from 64 to 4096",
                self.lmm_words
            ));
        }
        Ok(())
    }

    /// Rows of one group.
    pub fn group_rows(&self) -> u32 {
        self.rows / self.ports
    }
}
