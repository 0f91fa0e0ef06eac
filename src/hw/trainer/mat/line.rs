//! A signal that is needed at several cycles after its slot.

use crate::dsl::{Module, Sig};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// A delay line with taps made on demand.
pub(super) struct Line<'m> {
    m: &'m Module,
    name: String,
    reset: bool,
    taps: RefCell<BTreeMap<u32, Sig<'m>>>,
}

impl<'m> Line<'m> {
    /// A value that is present at cycle `t` and only looked at when a flag says so.
    pub fn value(m: &'m Module, name: &str, sig: Sig<'m>, t: u32) -> Self {
        Line {
            m,
            name: name.to_string(),
            reset: false,
            taps: RefCell::new(BTreeMap::from([(t, sig)])),
        }
    }

    /// A flag that must be 0 after reset.
    pub fn flag(m: &'m Module, name: &str, sig: Sig<'m>, t: u32) -> Self {
        Line {
            reset: true,
            ..Self::value(m, name, sig, t)
        }
    }

    /// The signal at cycle `t`, which is not before its first.
    #[track_caller]
    pub fn at(&self, t: u32) -> Sig<'m> {
        let mut taps = self.taps.borrow_mut();
        let Some((&from, &sig)) = taps.range(..=t).next_back() else {
            panic!("`{}` is not known at cycle {t}", self.name);
        };
        if from == t {
            return sig;
        }
        let name = format!("{}_t{t}", self.name);
        let tap = match self.reset {
            true => resettable(self.m, &name, sig, t - from),
            false => self.m.delay(&name, sig, t - from),
        };
        taps.insert(t, tap);
        tap
    }
}

/// A one-bit delay whose registers are all 0 after reset.
fn resettable<'m>(m: &'m Module, name: &str, sig: Sig<'m>, stages: u32) -> Sig<'m> {
    let sr = m.reg(&format!("{name}_q"), stages).with_reset(0);
    let next = match stages {
        1 => sig,
        n => m.cat(&[sr.q().trunc(n - 1), sig]),
    };
    sr.set_next(next);
    sr.q().msb()
}
