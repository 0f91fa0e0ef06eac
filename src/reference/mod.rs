//! The reference trainer. Uses `config` and `num` only, never the hardware side.
