//! Plans of the full-size model and of small ones on small parts.

use super::*;
use crate::config::model::{MomentFormat, WeightFormat};
use crate::trainer::testing::{odd_model, paper_model, small_model, tiny_model};
use crate::trainer::waits;

fn part(name: &str, lut: f64, dsp: f64, bram36: f64, uram: f64) -> Target {
    Target {
        name: name.into(),
        available: Resources {
            lut,
            ff: 2.0 * lut,
            dsp,
            bram36,
            uram,
            lutram_bits: lut / 2.0 * 64.0,
        },
        lut_share: LUT_SHARE,
        clock_mhz: 200.0,
    }
}

fn zcu102() -> Target {
    part("zcu102", 274_080.0, 2520.0, 912.0, 0.0)
}

fn arty() -> Target {
    part("arty-a7-100", 63_400.0, 240.0, 135.0, 0.0)
}

#[test]
fn full_size_memories_fit_a_zcu102_with_seven_bytes() {
    let options = Options {
        array: Some(44),
        adam_lanes: Some(11),
        groups: None,
    };
    // Memories alone: the logic has a part of its own size.
    let target = Target {
        lut_share: 1.2,
        ..zcu102()
    };
    let plan = Plan::new(&paper_model(), &target, &options).unwrap();
    let short: Vec<&str> = plan.shortfall.iter().map(|s| s.resource).collect();
    assert!(!short.contains(&"bram36"), "{:?}", plan.used);
    assert!(!short.contains(&"dsp"), "{:?}", plan.used);
    assert!(plan.cycles_per_sample() <= 240_000);
    waits::check(&plan.shape, &plan.program).unwrap();
    // Every buffer lies within its group and no two that live together overlap.
    for (n, a) in plan.buffers.iter().enumerate() {
        assert!(a.base + a.words + plan.shape.b <= plan.shape.group_depth[a.group]);
        for b in &plan.buffers[..n] {
            let together = a.group == b.group && a.first <= b.last && b.first <= a.last;
            let apart = a.base + a.words <= b.base || b.base + b.words <= a.base;
            assert!(!together || apart, "{} and {}", a.name, b.name);
        }
    }
}

#[test]
fn ten_bytes_name_their_shortfall_and_a_way_out() {
    let model = ModelConfig {
        weight_format: WeightFormat::Bf16,
        moment_format: MomentFormat::Fp32,
        ..paper_model()
    };
    let options = Options {
        array: Some(44),
        adam_lanes: Some(11),
        groups: Some(6),
    };
    let plan = Plan::new(&model, &zcu102(), &options).unwrap();
    assert!(plan.shortfall.iter().any(|s| s.resource == "bram36"));
    let roomy = Target {
        lut_share: 1.2,
        ..zcu102()
    };
    let way = nearest(&model, &roomy, &options).unwrap().unwrap();
    assert!(way.plan.fits());
    assert!(
        way.settings
            .contains(&("moment_format".into(), "bf16".into()))
    );
}

#[test]
fn small_models_fit_small_parts() {
    for model in [tiny_model(), small_model()] {
        let plan = Plan::new(&model, &arty(), &Options::default()).unwrap();
        assert_eq!(
            plan.shortfall,
            vec![],
            "{} B = {}",
            model.name,
            plan.shape.b
        );
        waits::check(&plan.shape, &plan.program).unwrap();
    }
}

#[test]
fn the_same_input_gives_the_same_plan() {
    let plan = || Plan::new(&odd_model(), &arty(), &Options::default()).unwrap();
    let (a, b) = (plan(), plan());
    assert_eq!(a.program, b.program);
    assert_eq!(a.to_json(), b.to_json());
}

#[test]
fn impossible_options_are_refused() {
    let try_with = |options: Options| Plan::new(&tiny_model(), &arty(), &options).err();
    assert_eq!(
        try_with(Options {
            array: Some(1),
            ..Options::default()
        }),
        Some(PlanError::Array(1))
    );
    let lanes = try_with(Options {
        array: Some(8),
        adam_lanes: Some(3),
        ..Options::default()
    });
    assert!(matches!(
        lanes,
        Some(PlanError::Lanes {
            lanes: 3,
            array: 8,
            ..
        })
    ));
    assert_eq!(
        try_with(Options {
            groups: Some(2),
            ..Options::default()
        }),
        Some(PlanError::Groups(2))
    );
    let long = ModelConfig {
        ff_dim: 9000,
        ..tiny_model()
    };
    assert_eq!(
        Plan::new(&long, &arty(), &Options::default()).err(),
        Some(PlanError::TooLong(9000))
    );
}

#[test]
fn members_of_a_family_keep_proportion_heads_and_everything_else() {
    let model = paper_model();
    let own = model.head_dim();
    assert_eq!(member(&model, own), model);
    for n in 1..3 * own {
        let m = member(&model, n);
        assert_eq!(m.embed_dim, n * model.heads);
        let exact = model.ff_dim as f64 / model.embed_dim as f64 * m.embed_dim as f64;
        assert!((m.ff_dim as f64 - exact).abs() <= 0.5, "{n}: {}", m.ff_dim);
        assert!(m.parameters() > member(&model, n - 1).parameters());
    }
}

#[test]
fn the_largest_model_fits_and_the_next_width_does_not() {
    let target = part("small", 63_400.0, 240.0, 80.0, 0.0);
    let (model, options) = (small_model(), Options::default());
    let mut reported = vec![];
    let found = largest(&model, &target, &options, |t| reported.push(t.clone())).unwrap();
    assert!(found.plan.fits());
    assert_eq!(reported, found.tried);
    let width = found.plan.model.head_dim();
    assert_eq!(found.plan.model, member(&model, width));
    for n in width + 1..=width + 2 {
        let next = Plan::new(&member(&model, n), &target, &options).unwrap();
        assert!(!next.fits(), "{n}");
    }
    let own = Plan::new(&model, &target, &options).unwrap();
    assert!(!own.fits() || width >= model.head_dim());
    let none = part("none", 500.0, 4.0, 1.0, 0.0);
    let found = largest(&model, &none, &options, |_| ()).unwrap();
    assert!(!found.plan.fits());
    assert_eq!(found.plan.model.embed_dim, model.heads);
}
