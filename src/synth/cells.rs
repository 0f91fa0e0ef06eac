//! What the primitives of a mapped netlist count for.

use serde::Serialize;

/// Resources of a unit, or of a design, after synthesis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Counts {
    /// See [`super::LUT_FORMULA`].
    pub lut: u64,
    /// Of these, look-up tables used as RAM.
    pub lut_as_ram: u64,
    /// Of these, shift registers.
    pub lut_as_shift: u64,
    pub ff: u64,
    pub dsp: u64,
    /// 36 Kib blocks; an 18 Kib block is half of one.
    pub bram36: f64,
    pub uram: u64,
    /// Carry primitives (CARRY4), for information.
    pub carry: u64,
}

impl Counts {
    /// Adds `n` of `other`.
    pub fn add(&mut self, other: &Counts, n: usize) {
        let times = n as u64;
        self.lut += other.lut * times;
        self.lut_as_ram += other.lut_as_ram * times;
        self.lut_as_shift += other.lut_as_shift * times;
        self.ff += other.ff * times;
        self.dsp += other.dsp * times;
        self.bram36 += other.bram36 * n as f64;
        self.uram += other.uram * times;
        self.carry += other.carry * times;
    }

    /// Counts one cell. False when the type is none of the primitives that are known here.
    pub fn count(&mut self, cell: &str) -> bool {
        match cell {
            "LUT1" | "LUT2" | "LUT3" | "LUT4" | "LUT5" | "LUT6" | "INV" => self.lut += 1,
            "SRL16E" | "SRLC32E" => {
                self.lut += 1;
                self.lut_as_shift += 1;
            }
            "FDRE" | "FDSE" | "FDCE" | "FDPE" => self.ff += 1,
            "DSP48E1" | "DSP48E2" => self.dsp += 1,
            "RAMB36E1" | "RAMB36E2" => self.bram36 += 1.0,
            "RAMB18E1" | "RAMB18E2" => self.bram36 += 0.5,
            "URAM288" => self.uram += 1,
            "CARRY4" | "CARRY8" => self.carry += 1,
            "MUXF5" | "MUXF6" | "MUXF7" | "MUXF8" | "MUXF9" => {}
            _ => match lut_ram(cell) {
                Some(luts) => {
                    self.lut += luts;
                    self.lut_as_ram += luts;
                }
                None => return false,
            },
        }
        true
    }
}

/// Look-up tables of a distributed memory primitive (UG574, UG474: how many of a slice each takes).
fn lut_ram(cell: &str) -> Option<u64> {
    Some(match cell {
        "RAM32X1S" | "RAM64X1S" => 1,
        "RAM32X1D" | "RAM64X1D" | "RAM128X1S" => 2,
        "RAM32M" | "RAM64M" | "RAM128X1D" | "RAM256X1S" => 4,
        "RAM32M16" | "RAM64M8" | "RAM256X1D" | "RAM512X1S" => 8,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_formula_counts_each_kind_once() {
        let mut all = Counts::default();
        for cell in [
            "LUT6", "INV", "SRL16E", "RAM64M8", "FDRE", "RAMB18E2", "RAMB36E2", "MUXF7",
        ] {
            assert!(all.count(cell), "{cell}");
        }
        assert_eq!((all.lut, all.lut_as_ram, all.lut_as_shift), (11, 8, 1));
        assert_eq!((all.ff, all.bram36), (1, 1.5));
        assert!(!all.count("nf_mac_cell"));
        let mut sum = Counts::default();
        sum.add(&all, 3);
        assert_eq!((sum.lut, sum.bram36), (33, 4.5));
    }
}
