//! User-facing configuration: models, devices, and how they are read and checked.

pub mod model;
