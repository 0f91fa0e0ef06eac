//! Composes the compiler's stages: a model and a plan become a core that can be emitted and simulated.

pub mod trainer;
