//! The programmable linear array (CGLA) for BitNet: encoding, schedules, model, RTL, simulation.
//!
//! `docs/cgla.md` describes the machine. The same RTL runs every schedule; only configuration
//! words and packets change.

pub mod backend;
pub mod bench;
pub mod config;
pub mod error;
pub mod experiments;
pub mod image;
pub mod int8;
pub mod isa;
pub mod launch;
pub mod model;
pub mod packet;
pub mod paper;
pub mod registers;
pub mod resources;
pub mod rtl;
pub mod sample;
pub mod schedule;
pub mod timing;

pub use config::{ArrayConfig, LaneSign};
pub use error::{Error, Result};
pub use launch::{Launch, LaunchResult, Machine};
