//! Bus models of the tests are independent of the blocks: they know the AXI rules only.

mod lint;
mod lite;
mod result;
mod stream;
mod token;
