use super::*;
use crate::num::schedule::tests::paper;
use crate::num::testfloat::data_dir;
use crate::reference::corpus::{Corpus, LineEndings};
use crate::reference::evaluate::{Protocol, evaluate};
use crate::reference::neuro_header::{dotnet_number, dotnet_string};
use crate::reference::tests::odd_model;
use crate::reference::{Trainer, corpus};
use proptest::prelude::*;

const GPU: &str = "preprint-gpu-fp32-334k-80k.neuro";
const CPU: &str = "preprint-cpu-bf16w-334k-80k.neuro";

fn bytes_of(name: &str) -> Option<Vec<u8>> {
    Some(std::fs::read(data_dir()?.join("neuro").join(name)).unwrap())
}

#[test]
fn published_files_are_written_back_byte_for_byte() {
    for (name, kind) in [(GPU, NeuroKind::Gpu), (CPU, NeuroKind::CpuBf16)] {
        let Some(bytes) = bytes_of(name) else { return };
        let file = NeuroFile::parse(&bytes).unwrap();
        assert_eq!(file.kind(), kind);
        assert!(file.to_bytes() == bytes);
        // The header that this program would write is the same text.
        let again = NeuroFile::new(file.config.clone(), file.tensors.clone());
        assert_eq!(
            String::from_utf8(again.header).unwrap(),
            String::from_utf8(file.header.clone()).unwrap()
        );
        // And so is a file made from the state alone.
        let model = file.model().unwrap();
        let state = file.state(&model).unwrap();
        let mut made = NeuroFile::from_state(&model, &state, kind, file.config.app_version.clone());
        if kind == NeuroKind::CpuBf16 {
            // Step counters as the authors' program leaves them.
            for (ours, theirs) in made.tensors.iter_mut().zip(&file.tensors) {
                if ours.name.ends_with("adam_step") {
                    ours.data.clone_from(&theirs.data);
                }
            }
        }
        assert!(made.tensors == file.tensors, "{name}");
        assert!(made.to_bytes() == bytes, "{name}");
    }
}

/// The size of the authors' CPU FP32 file follows from its header's names.
#[test]
fn layout_with_moments_has_the_published_size() {
    let model = ModelConfig {
        weight_format: WeightFormat::Fp32,
        layernorm_optimizer: LayerNormOptimizer::Sgd,
        ..paper()
    };
    let mut state = State::init(&model);
    state.schedule.step = 80_000;
    let file = NeuroFile::from_state(&model, &state, NeuroKind::CpuFp32, None);
    assert_eq!(file.to_bytes().len(), 4_020_896);
}

#[test]
fn every_kind_keeps_what_it_can_hold() {
    let model = ModelConfig {
        layernorm_optimizer: LayerNormOptimizer::Sgd,
        ..odd_model()
    };
    let mut trainer = Trainer::new(&model, State::init(&model), 1).unwrap();
    for i in 0..3 {
        trainer
            .step(&crate::reference::tests::window(&model, i))
            .unwrap();
    }
    let state = trainer.into_state();
    for version in [None, Some("1.1.0+abc".to_string())] {
        for kind in [NeuroKind::Gpu, NeuroKind::CpuBf16, NeuroKind::CpuFp32] {
            let bytes = NeuroFile::from_state(&model, &state, kind, version.clone()).to_bytes();
            let file = NeuroFile::parse(&bytes).unwrap();
            assert_eq!(
                (file.kind(), file.config.app_version.clone()),
                (kind, version.clone())
            );
            assert!(file.to_bytes() == bytes);
            let back = file.state(&model).unwrap();
            for (a, b) in back.tensors.iter().zip(&state.tensors) {
                assert_eq!(a.w, b.w);
            }
            if kind == NeuroKind::CpuFp32 {
                assert!(back.tensors == state.tensors);
                assert_eq!(back.schedule, state.schedule);
            }
        }
    }
}

/// The losses that the authors logged, and those of the whole split.
#[test]
fn published_checkpoints_evaluate_to_the_published_losses() {
    let Some(dir) = data_dir() else { return };
    let text = std::fs::read(dir.join("tinyshakespeare.txt")).unwrap();
    let corpus = Corpus::from_bytes(&text, LineEndings::Crlf, 256).unwrap();
    assert_eq!(
        (corpus.train().len(), corpus.validation().len()),
        (1_039_854, 115_540)
    );
    for (name, gelu, paper64, accuracy, full) in [
        (GPU, Gelu::Erf, 1.5224, 0.5566, 1.5277),
        (CPU, Gelu::Tanh, 1.5437, 0.5485, 1.5479),
    ] {
        let file = NeuroFile::parse(&bytes_of(name).unwrap()).unwrap();
        for compute in [Compute::Block18, Compute::Fp32] {
            let model = ModelConfig {
                gelu,
                compute,
                ..file.model().unwrap()
            };
            let mut trainer = Trainer::new(&model, file.state(&model).unwrap(), 2).unwrap();
            let result = evaluate(&mut trainer, &corpus, Protocol::Paper64, |_, _| ()).unwrap();
            println!("{name} {compute:?} {result:?}");
            assert!(
                (result.loss - paper64).abs() < 6e-5,
                "{name} {compute:?} {}",
                result.loss
            );
            assert!(
                (result.accuracy - accuracy).abs() < 3e-4,
                "{name} {compute:?} {}",
                result.accuracy
            );
            let result = evaluate(&mut trainer, &corpus, Protocol::Full, |_, _| ()).unwrap();
            println!("{name} {compute:?} {result:?}");
            assert_eq!(result.windows, 902);
            assert!(
                (result.loss - full).abs() < 6e-5,
                "{name} {compute:?} {}",
                result.loss
            );
        }
    }
}

/// Every gradient tensor of the paper's checkpoint against f64.
#[test]
fn gradients_at_the_published_checkpoint() {
    let Some(dir) = data_dir() else { return };
    let text = std::fs::read(dir.join("tinyshakespeare.txt")).unwrap();
    let text = corpus::convert(&text, LineEndings::Crlf);
    let tokens: Vec<u32> = text[5_000..5_129].iter().map(|&b| u32::from(b)).collect();
    let file = NeuroFile::parse(&bytes_of(GPU).unwrap()).unwrap();
    for (compute, bound) in [
        (Compute::Fp32, 3e-5),
        (Compute::Block18, 3e-3),
        (Compute::Block12, 0.3),
        (Compute::Block10, 1.0),
    ] {
        let model = ModelConfig {
            compute,
            ..file.model().unwrap()
        };
        let state = file.state(&model).unwrap();
        let mut errors = crate::reference::tests::gradient_errors(&model, &state, &tokens);
        for (name, error) in &errors {
            println!("{compute:?} {name} {error:.2e}");
            assert!(*error < bound, "{compute:?} {name}: {error}");
        }
        errors.sort_by(|a, b| a.1.total_cmp(&b.1));
        let (median, worst) = (errors[errors.len() / 2].1, errors[errors.len() - 1].1);
        println!("{compute:?}: median {median:.1e}, worst {worst:.1e}");
    }
}

#[test]
fn numbers_and_strings_as_dotnet_writes_them() {
    for (x, text) in [
        (0.0, "0"),
        (0.003, "0.003"),
        (3e-5, "3E-05"),
        (1e-4, "0.0001"),
        (1.5, "1.5"),
        (1e16, "1E+16"),
        (2.5e-7, "2.5E-07"),
    ] {
        assert_eq!(dotnet_number(x), text);
    }
    assert_eq!(dotnet_string("a+\"b"), "\"a\\u002B\\u0022b\"");
}

fn small_file() -> Vec<u8> {
    let model = ModelConfig {
        layers: 1,
        ..odd_model()
    };
    NeuroFile::from_state(&model, &State::init(&model), NeuroKind::CpuFp32, None).to_bytes()
}

#[test]
fn damaged_files_are_errors_with_a_reason() {
    let good = small_file();
    let error = |bytes: &[u8]| {
        let parsed = NeuroFile::parse(bytes).and_then(|f| {
            let model = f.model()?;
            f.state(&model)
        });
        parsed.map(|_| ()).unwrap_err().to_string()
    };
    let replaced = |from: &str, to: &str| {
        let header = String::from_utf8(NeuroFile::parse(&good).unwrap().header).unwrap();
        assert!(header.contains(from));
        let new = header.replacen(from, to, 1);
        let mut bytes = (new.len() as u32).to_le_bytes().to_vec();
        bytes.extend(new.as_bytes());
        bytes.extend(&good[4 + header.len()..]);
        bytes
    };
    assert!(error(&good[..3]).contains("four bytes"));
    assert!(error(&good[..40]).contains("announced"));
    assert!(error(&good[..good.len() - 1]).contains("does not fit"));
    assert!(error(&[&good[..], &[0]].concat()).contains("1 bytes follow"));
    assert!(error(&replaced("\"version\": 1", "\"version\": 2")).contains("version 2"));
    assert!(error(&replaced("heads.1.Wk", "heads.1.Wx")).contains("no tensor layers.0.heads.1.Wk"));
    assert!(error(&replaced("\"ffDim\": 37", "\"ffDim\": 36")).contains("Wff1 is [18, 37]"));
    assert!(error(&replaced("\"embedDim\": 18", "\"embedDim\": 16000000")).contains("cannot be"));
    assert!(error(&replaced("\"embedDim\": 18", "\"embedDim\": 1800000")).contains("parameters"));
    assert!(
        error(&replaced("        29,", "        4000000000000000000,")).contains("does not fit")
    );
    let mut nan = good.clone();
    let header = u32::from_le_bytes([good[0], good[1], good[2], good[3]]) as usize;
    nan[4 + header..4 + header + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    assert!(error(&nan).contains("element 0 of tensor embedding.weights is NaN"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    /// Any damage gives a file or an error, never a panic.
    #[test]
    fn any_damage_is_survived(position in 0usize..6000, value: u8, cut in 0usize..20_000) {
        let mut bytes = small_file();
        let at = position % bytes.len();
        bytes[at] = value;
        bytes.truncate(bytes.len() - cut.min(bytes.len()) / 4);
        if let Ok(file) = NeuroFile::parse(&bytes)
            && let Ok(model) = file.model()
        {
            let _ = file.state(&model);
        }
    }
}
