use nfgen::compile::trainer::{Planned, compile};
use nfgen::config::load_model;
use nfgen::dsl::MemStyle;
use nfgen::reference::State;
use nfgen::sim::trainer as sim;
use nfgen::trainer::alloc::{Problem, apply};
use nfgen::trainer::isa::Shape;
use nfgen::trainer::layout::{WeightLayout, constant_table};
use nfgen::trainer::{program::generate, waits};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let sets: Vec<String> = args[4..].to_vec();
    let model = load_model(&args[1], &sets).unwrap();
    let b: usize = args[2].parse().unwrap();
    let steps: usize = args[3].parse().unwrap();
    let weights = WeightLayout::new(&model, b);
    let logical = generate(&model, &weights);
    let problem = Problem::new(&logical);
    let depth = vec![problem.peak(); 6];
    let placement = &problem.placements(&depth, 4)[0];
    let placed = apply(&logical, placement);
    let shape = Shape {
        b,
        adam_lanes: b / 4,
        group_depth: placement.used.iter().map(|u| u + b).collect(),
        position_depth: (model.seq_len.div_ceil(b)) * model.embed_dim,
        weight_depth: weights.depth,
        layernorm_words: model.layernorm_parameters(),
        scalar_rows: logical.scalar_rows,
        mat_exps: placed.mat_exps,
        vec_exps: placed.vec_exps,
        weight_exps: weights.tensors.len(),
        constants: constant_table(&model),
    };
    let program = waits::assign(&shape, placed.instrs);
    println!("program {} mat {} vec {} adam", program.mat.len(), program.vec.len(), program.adam.len());
    let planned = Planned { model: model.clone(), shape, program, weights, moment_style: MemStyle::Block, resources: serde_json::Value::Null };
    let t = std::time::Instant::now();
    let core = match compile(&planned, "x", "") { Ok(c) => c, Err(e) => { println!("{e:#}"); std::process::exit(1) } };
    println!("compiled in {:?}: {} files, {} bytes", t.elapsed(), core.rtl.len(), core.rtl.iter().map(|f| f.text.len()).sum::<usize>());
    let dir = std::path::Path::new("/tmp/integ"); let _ = std::fs::remove_dir_all(dir);
    std::fs::create_dir_all(dir).unwrap();
    for f in core.rtl.iter().chain(&core.memories).chain(&core.testbench) { std::fs::write(dir.join(&f.name), &f.text).unwrap(); }
    let options = sim::Options { stalls: 0.0, seed: 1, waveform: std::env::var("WAVE").ok().map(Into::into), cache: "/tmp/nfcache".into(), threads: 1 };
    let t = std::time::Instant::now();
    let m = sim::build(&core, None, &options).unwrap_or_else(|e| { println!("{e}"); std::process::exit(1) });
    println!("model built in {:?}", t.elapsed());
    let text = std::fs::read("/work/shared/data/tinyshakespeare.txt").unwrap();
    let windows: Vec<Vec<u32>> = (0..steps).map(|k| text[k * 997..][..model.seq_len + 1].iter().map(|c| *c as u32 % model.vocab as u32).collect()).collect();
    let t = std::time::Instant::now();
    let r = sim::run(&planned, &m, &State::init(&model), &windows, &options, &mut |s| println!("{s:?}")).unwrap();
    println!("{:?}\n{r:#?}", t.elapsed());
}
