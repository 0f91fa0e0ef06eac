//! Delay lines in flip-flops.

use crate::dsl::{Module, Sig};

/// `value`, `stages` cycles later, in flip-flops instead of shift-register LUTs.
///
/// Wide delay lines cost one LUT per bit as shift registers. LUTs are what a full-size machine is short of, while
/// half of the flip-flops stay unused. The reset is there for this alone: no shift register has one.
pub fn register_delay<'m>(m: &'m Module, name: &str, value: Sig<'m>, stages: u32) -> Sig<'m> {
    if stages < 3 || value.width() == 0 {
        return m.pipe(name, value, stages);
    }
    let w = value.width();
    let line = m.reg(&format!("{name}_line_q"), w * stages).with_reset(0);
    line.set_next(m.cat(&[line.q().trunc(w * (stages - 1)), value]));
    line.q().slice(w * stages - 1, w * (stages - 1))
}
