//! The one definition of the arithmetic (see `docs/arithmetic.md`). The reference computes with it; the RTL must equal it bit for bit.
