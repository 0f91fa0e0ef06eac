//! The vector unit (`docs/machine.md` sections 4 and 7): one token tile times n steps per
//! instruction, lane = token.
//!
//! ```text
//! issue ─► banks ─► rotators x, y ─► B lanes ─► rotator z ─► banks
//!   │                                 │  └ exponent tree ─► exponent update
//!   └─ controls, delayed to each      └ reductions ─► scalar unit ─► scalar file, loss, retire
//!      stage; gamma, beta, constants
//! ```
//!
//! Everything behind the issue stage has a fixed latency and its controls travel with the
//! element, so the next instruction may stream while this one drains. Only a reduction pauses
//! the issue: its fold occupies the adders behind the last element.

pub mod cost;
mod fold;
mod issue;
mod lane;
mod loss;
mod retire;
mod scalar;
mod supported;
pub mod table;
#[cfg(test)]
mod tests;
mod unit;

pub use cost::{start_to_ready, start_to_retire};
pub use lane::{LaneSpec, vector_lane};
pub use scalar::{ScalarSpec, scalar_unit};
pub use supported::supported;
pub use table::table_unit;
pub use unit::{VectorSpec, VectorTiming, vector_unit};
