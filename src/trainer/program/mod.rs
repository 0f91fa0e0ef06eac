//! The program of one training step.
//!
//! Instructions are emitted in one global order in which executing them one by one is correct. Activations are
//! named by logical buffers (a group number is a buffer number, addresses start at 0); [`super::alloc`] gives the
//! buffers a place and [`super::waits`] turns the global order into the engines' wait counts.

mod attention;
mod backward;
mod build;
mod forward;
mod gradient;

pub use build::{Buffer, Choices, Instr, Logical, generate};
