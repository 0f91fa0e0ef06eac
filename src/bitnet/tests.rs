//! Whole-model tests on small synthetic files.

use proptest::prelude::*;

use super::cpu::CpuReference;
use super::decoder::{Decoder, DecoderOptions, FeedForward};
use super::gguf::{GgufFile, TensorType};
use super::make::{Given, MakeOptions, make_model};
use super::model::{ARCHITECTURES, Model};
use super::shapes::Shape;
use super::ternary::{I2sLayout, TernaryMatrix};
use super::tokenizer::Tokenizer;
use super::{convert, inspect};

fn options() -> MakeOptions {
    MakeOptions {
        shape: Shape {
            width: 256,
            feed_forward: 512,
            layers: 2,
            heads: 4,
            kv_heads: 2,
            vocab: 400,
        },
        context: 64,
        architecture: "bitnet-b1.58".into(),
        dtype: TensorType::I2S,
        layout: I2sLayout::Block128,
        zeros: 0.3,
        seed: 7,
    }
}

fn made(options: &MakeOptions) -> GgufFile {
    let writer = make_model(options, Given::new()).unwrap();
    GgufFile::parse(writer.to_bytes().into()).unwrap()
}

fn logits_of(file: &GgufFile, layout: I2sLayout, tokens: &[u32]) -> Vec<f32> {
    let model = Model::from_gguf(file, layout).unwrap();
    let mut decoder = Decoder::new(&model, DecoderOptions::default());
    let mut backend = CpuReference::new();
    decoder.advance(tokens, &mut backend).unwrap()
}

#[test]
fn a_batch_of_tokens_equals_single_tokens() {
    let file = made(&options());
    let model = Model::from_gguf(&file, I2sLayout::Block128).unwrap();
    let tokens = [256, 10, 20, 300, 4];
    let batch = logits_of(&file, I2sLayout::Block128, &tokens);
    let mut backend = CpuReference::new();
    let mut single = Decoder::new(&model, DecoderOptions::default());
    let mut last = Vec::new();
    for token in tokens {
        last = single.advance(&[token], &mut backend).unwrap();
    }
    assert_eq!(batch, last);
    assert!(batch.iter().all(|l| l.is_finite()));
    assert!(batch.iter().any(|&l| l != batch[0]));
    let mut other = Decoder::new(
        &model,
        DecoderOptions {
            feed_forward: FeedForward::Silu,
            ..DecoderOptions::default()
        },
    );
    assert_ne!(other.advance(&tokens, &mut backend).unwrap(), batch);
}

#[test]
fn every_container_and_architecture_decodes_alike() {
    let base = options();
    let expected = logits_of(&made(&base), I2sLayout::Block128, &[256, 1, 2]);
    for architecture in ARCHITECTURES {
        let options = MakeOptions {
            architecture: architecture.into(),
            layout: I2sLayout::Block64,
            ..base.clone()
        };
        let got = logits_of(&made(&options), I2sLayout::Block64, &[256, 1, 2]);
        assert_eq!(got, expected, "{architecture}");
    }
    // The wrong layout must not go unnoticed by a test: it gives other numbers.
    let options = MakeOptions {
        layout: I2sLayout::Block64,
        ..base
    };
    let wrong = logits_of(&made(&options), I2sLayout::Block128, &[256, 1, 2]);
    assert_ne!(wrong, expected);
}

#[test]
fn converting_there_and_back_keeps_the_trits() {
    let file = made(&options());
    let layout = I2sLayout::Block128;
    let (tq, report) = convert::convert(&file, layout, TensorType::Tq1_0, layout).unwrap();
    assert_eq!(report.converted, 14);
    let tq = GgufFile::parse(tq.to_bytes().into()).unwrap();
    let (back, _) = convert::convert(&tq, layout, TensorType::I2S, layout).unwrap();
    let back = GgufFile::parse(back.to_bytes().into()).unwrap();
    for tensor in file.tensors.iter().filter(|t| t.dtype == TensorType::I2S) {
        let codes = (tensor.elements() / 4) as usize;
        let other = back.tensor(&tensor.name).unwrap();
        assert_eq!(
            file.data(tensor).unwrap()[..codes],
            back.data(other).unwrap()[..codes]
        );
    }
}

#[test]
fn tokenizer_round_trips_and_merges() {
    let file = made(&options());
    let tokenizer = Tokenizer::from_gguf(&file).unwrap();
    let text = "the cat's naïve <|eot_id|>12345\n ok";
    let tokens = tokenizer.encode(text).unwrap();
    assert_eq!(tokens[0], 256);
    assert!(tokens.contains(&258));
    assert_eq!(tokenizer.decode(&tokens[1..]), text);
    assert_eq!(tokenizer.stops, [257, 258]);
    // " c" and "at" exist as merges: " cat" is two tokens, not four.
    assert_eq!(tokenizer.encode(" cat").unwrap().len(), 1 + 2);
}

#[test]
fn inspection_names_what_is_odd() {
    let mut odd = options();
    odd.zeros = 0.0;
    let report = inspect::inspect(&made(&odd), I2sLayout::Block128).unwrap();
    assert_eq!(report.warnings.len(), 14);
    assert!(report.warnings[0].contains("was not ternary"));
    assert_eq!(report.shape, Some(odd.shape));
    let normal = inspect::inspect(&made(&options()), I2sLayout::Block128).unwrap();
    assert!(normal.warnings.is_empty(), "{:?}", normal.warnings);
}

#[test]
fn given_tensors_are_used_and_checked() {
    let mut options = options();
    options.shape.layers = 1;
    let name = "blk.0.attn_k.weight".to_owned();
    let mut values = vec![0.25f32; 128 * 256];
    values[3] = -0.25;
    values[5] = 0.0;
    let given = Given::from([(name.clone(), (vec![256, 128], values.clone()))]);
    let writer = make_model(&options, given).unwrap();
    let file = GgufFile::parse(writer.to_bytes().into()).unwrap();
    let model = Model::from_gguf(&file, I2sLayout::Block128).unwrap();
    assert_eq!(model.layers[0].attn_k.codes(0)[..6], [2, 2, 2, 0, 2, 1]);
    values[7] = 0.1;
    let given = Given::from([(name, (vec![256, 128], values))]);
    let text = make_model(&options, given).err().unwrap().to_string();
    assert!(text.contains("not ternary"), "{text}");
}

#[test]
fn given_tensors_of_other_shapes_and_numbers_are_refused() {
    let refused = |name: &str, dims: &[u64], values: Vec<f32>| {
        let given = Given::from([(name.to_owned(), (dims.to_vec(), values))]);
        let text = make_model(&options(), given).err().unwrap().to_string();
        assert!(text.contains(name), "{text}");
        text
    };
    let vocab = options().shape.vocab;
    for dims in [
        &[][..],
        &[1],
        &[vocab as u64, 256],
        &[256, vocab as u64 + 1],
    ] {
        let values = vec![0.0; dims.iter().product::<u64>() as usize];
        let text = refused("token_embd.weight", dims, values);
        assert!(text.contains("expected [256,"), "{text}");
    }
    let mut values = vec![0.5; 256];
    values[9] = f32::NAN;
    let text = refused("output_norm.weight", &[256], values);
    assert!(text.contains("element 9 is NaN"), "{text}");
    let mut values = vec![0.5; 256 * vocab];
    values[3] = 1e6;
    let text = refused("token_embd.weight", &[256, vocab as u64], values);
    assert!(text.contains("element 3 is 1000000"), "{text}");
}

/// Nothing is allocated for sizes that cannot be made.
#[test]
fn sizes_that_cannot_be_made_are_refused() {
    let refused = |change: fn(&mut MakeOptions), word: &str| {
        let mut options = options();
        change(&mut options);
        let text = make_model(&options, Given::new())
            .err()
            .unwrap()
            .to_string();
        assert!(text.contains(word), "{text}");
    };
    refused(|o| o.shape.width = 0, "width 0");
    refused(|o| o.shape.feed_forward = 1 << 63, "up to 16777216");
    refused(|o| o.shape.vocab = usize::MAX, "up to 16777216");
    refused(|o| o.context = (1 << 32) + 1, "context 4294967297");
    refused(|o| o.shape.layers = 1 << 24, "in memory");
    refused(
        |o| (o.shape.width, o.shape.vocab) = (1 << 20, 1 << 20),
        "in memory",
    );
}

/// Half precision would turn the scale into infinity, or every weight into zero.
#[test]
fn scales_outside_half_precision_are_refused() {
    for scale in [1e6f32, 1e-12] {
        let matrix = TernaryMatrix::from_trits(1, 256, &[1; 256], scale).unwrap();
        for dtype in [TensorType::F16, TensorType::Tq1_0, TensorType::Tq2_0] {
            let text = matrix.encode(dtype, I2sLayout::Block128, "w");
            let text = text.unwrap_err().to_string();
            assert!(
                text.contains("`w`") && text.contains("half precision"),
                "{text}"
            );
        }
    }
}

/// A piece without a space may be as long as the text, and control tokens may be its only content.
#[test]
fn long_prompts_are_encoded_in_time() {
    let file = GgufFile::parse(
        make_model(&options(), Given::new())
            .unwrap()
            .to_bytes()
            .into(),
    );
    let tokenizer = Tokenizer::from_gguf(&file.unwrap()).unwrap();
    let started = std::time::Instant::now();
    let long = "ab".repeat(100_000);
    assert_eq!(
        tokenizer.decode(&tokenizer.encode(&long).unwrap()[1..]),
        long
    );
    assert_eq!(
        tokenizer.encode(&long).unwrap().len(),
        1 + 50_000 * tokenizer.encode("abab").unwrap().len().saturating_sub(1)
    );
    let control = "<|eot_id|>".repeat(10_000);
    assert_eq!(tokenizer.encode(&control).unwrap()[1..], [258; 10_000]);
    // Quadratic time took minutes.
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
}

#[test]
fn unknown_architectures_are_named() {
    let mut bytes = make_model(&options(), Given::new()).unwrap().to_bytes();
    let at = bytes
        .windows(12)
        .position(|w| w == b"bitnet-b1.58")
        .unwrap();
    bytes[at..at + 12].copy_from_slice(b"qwen3-noooop");
    let file = GgufFile::parse(bytes.into()).unwrap();
    let text = Model::from_gguf(&file, I2sLayout::Block128)
        .unwrap_err()
        .to_string();
    assert!(
        text.contains("qwen3-noooop") && text.contains("bitnet-b1.58"),
        "{text}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever the bytes are, loading a model ends with a value or an error.
    #[test]
    fn damaged_models_never_panic(
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        header in any::<bool>(),
        cut in any::<prop::sample::Index>(),
        truncate in any::<bool>(),
    ) {
        let mut small = options();
        small.shape.layers = 1;
        small.shape.vocab = 260;
        let mut bytes = make_model(&small, Given::new()).unwrap().to_bytes();
        // Most of a file is weights; half of the cases aim at what comes before them.
        let span = if header { 9000 } else { bytes.len() };
        for (at, value) in flips {
            let at = at.index(span);
            bytes[at] = value;
        }
        if truncate {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(file) = GgufFile::parse(bytes.into()) {
            let _ = Tokenizer::from_gguf(&file).map(|t| t.encode("a b"));
            for layout in [I2sLayout::Block128, I2sLayout::Block64, I2sLayout::FourRow] {
                let _ = Model::from_gguf(&file, layout);
                let _ = inspect::inspect(&file, layout);
            }
        }
    }
}
