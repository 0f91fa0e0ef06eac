//! The programmable linear array (CGLA) for BitNet: encoding, schedules, model, RTL, simulation.
//!
//! `docs/cgla.md` describes the machine. The same RTL runs every schedule; only configuration
//! words and packets change.

pub mod backend;
pub mod config;
pub mod error;
pub mod isa;
pub mod launch;
pub mod model;
pub mod packet;
pub mod rtl;
pub mod schedule;
pub mod simulate;
pub mod timing;

pub use config::{ArrayConfig, LaneSign};
pub use error::{Error, Result};
pub use launch::{Launch, LaunchResult, Machine};
