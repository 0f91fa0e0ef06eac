//! User-facing configuration: models, devices, and how they are read and checked.
//!
//! [`load_model`] and [`load_device`] take what stands after `--model` and `--device`: a built-in name or a TOML
//! file. Everything wrong with a file is reported at once, each with its place and what would be accepted.

pub mod budget;
pub mod device;
pub mod fields;
pub mod model;
pub mod resolve;
pub mod schema;

pub use budget::VocabularyBudget;
pub use device::{Device, load_device};
pub use model::ModelConfig;
pub use resolve::{check_model, load_model, parse_model, require_hardware, with_arguments};

#[cfg(test)]
mod tests;
