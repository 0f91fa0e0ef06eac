use super::lite::map;
use crate::hw::axi::lite::register_file;
use crate::hw::axi::result::result_output;
use crate::hw::axi::token::TokenInput;
use crate::hw::trainer::schedule::schedule_unit;
use crate::sim::lint::assert_clean;

#[test]
fn every_block_lints() {
    let tokens = TokenInput {
        vocab: 201,
        seq_len: 11,
        lanes: 4,
    };
    for def in [
        register_file(&map()),
        tokens.build(),
        result_output(37),
        schedule_unit(),
    ] {
        assert_clean(&def.unwrap());
    }
}
