//! The programmable linear array (CGLA) for BitNet.
