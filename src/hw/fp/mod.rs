//! FP32 units: pipelined, one operation per cycle, no valid signals (the caller delays those).
//!
//! All follow the subnormal rule of `docs/arithmetic.md` section 1 and equal `num::fp32` on
//! every bit. Each unit comes as a module (`fp32_add()`), as an instance of it
//! (`add(&m, "u_add", a, b)`) and as logic to inline (`add::datapath`).

pub mod add;
pub mod compare;
pub mod convert;
pub mod div;
pub mod mul;
pub mod parts;
pub mod sqrt;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_convert;

pub use add::{ADD_LATENCY, fp32_add, fp32_sub};
pub use compare::{MAX_LATENCY, fp32_max};
pub use convert::{FROM_FIXED_LATENCY, TO_FIXED_LATENCY, ToFixed, fp32_from_fixed, fp32_to_fixed};
pub use div::{DIV_LATENCY, fp32_div};
pub use mul::{MUL_LATENCY, fp32_mul};
pub use sqrt::{SQRT_LATENCY, fp32_sqrt};

use crate::dsl::{DslError, Module, ModuleDef, Sig};
use std::sync::{Arc, OnceLock};

type Unit = Result<Arc<ModuleDef>, DslError>;

/// Builds a unit once per process, so that all instances share one definition.
fn shared(cell: &'static OnceLock<Unit>, build: fn() -> Unit) -> Unit {
    cell.get_or_init(build).clone()
}

macro_rules! unit {
    ($(#[$doc:meta])* $name:ident, $build:ident, $($port:ident),+) => {
        $(#[$doc])*
        #[track_caller]
        pub fn $name<'m>(m: &'m Module, instance: &str, $($port: Sig<'m>),+) -> Sig<'m> {
            static UNIT: OnceLock<Unit> = OnceLock::new();
            match shared(&UNIT, $build) {
                Ok(unit) => m.instance(instance, &unit)$(.input(stringify!($port), $port))+.output("y"),
                Err(error) => {
                    m.problem(&error.to_string());
                    m.lit(0, parts::WIDTH)
                }
            }
        }
    };
}

unit!(
    /// An instance of [`fp32_add`]: fl(a + b), [`ADD_LATENCY`] cycles later.
    add, fp32_add, a, b
);
unit!(
    /// An instance of [`fp32_sub`]: fl(a - b), [`ADD_LATENCY`] cycles later.
    sub, fp32_sub, a, b
);
unit!(
    /// An instance of [`fp32_mul`]: fl(a * b), [`MUL_LATENCY`] cycles later.
    mul, fp32_mul, a, b
);
unit!(
    /// An instance of [`fp32_div`]: fl(a / b), [`DIV_LATENCY`] cycles later.
    div, fp32_div, a, b
);
unit!(
    /// An instance of [`fp32_max`]: the larger of a and b, [`MAX_LATENCY`] cycle later.
    max, fp32_max, a, b
);
unit!(
    /// An instance of [`fp32_sqrt`]: fl(sqrt(a)), [`SQRT_LATENCY`] cycles later.
    sqrt, fp32_sqrt, a
);
