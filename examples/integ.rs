use nfgen::compile::trainer::compile;
use nfgen::config::load_model;
use nfgen::reference::State;
use nfgen::sim::trainer as sim;
use nfgen::trainer::plan::{Options, Plan, Resources, Target};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let sets: Vec<String> = args[4..].to_vec();
    let model = load_model(&args[1], &sets).unwrap();
    let b: usize = args[2].parse().unwrap();
    let steps: usize = args[3].parse().unwrap();
    let target = Target {
        name: "zcu102".into(),
        available: Resources {
            lut: 274080.0,
            ff: 548160.0,
            dsp: 2520.0,
            bram36: 912.0,
            uram: 0.0,
            lutram_bits: 8.8e6,
        },
        lut_share: 0.85,
        clock_mhz: 200.0,
    };
    let plan = Plan::new(
        &model,
        &target,
        &Options {
            array: (b > 0).then_some(b),
            ..Options::default()
        },
    )
    .unwrap();
    println!(
        "fits {} b {} G {} cycles {} used {:?} short {:?}",
        plan.fits(),
        plan.shape.b,
        plan.shape.adam_lanes,
        plan.cycles_per_sample(),
        plan.used,
        plan.shortfall
    );
    let t = std::time::Instant::now();
    let core = match compile(&plan, "x", "") {
        Ok(c) => c,
        Err(e) => {
            println!("{e:#}");
            std::process::exit(1)
        }
    };
    println!(
        "compiled in {:?}: {} files, {} bytes",
        t.elapsed(),
        core.rtl.len(),
        core.rtl.iter().map(|f| f.text.len()).sum::<usize>()
    );
    let dir = std::path::Path::new("/tmp/integ");
    let _ = std::fs::remove_dir_all(dir);
    std::fs::create_dir_all(dir).unwrap();
    for f in core.rtl.iter().chain(&core.memories).chain(&core.testbench) {
        std::fs::write(dir.join(&f.name), &f.text).unwrap();
    }
    if steps == 0 {
        return;
    }
    let options = sim::Options {
        stalls: std::env::var("STALLS")
            .ok()
            .map_or(0.0, |s| s.parse().unwrap()),
        seed: 1,
        waveform: std::env::var("WAVE").ok().map(Into::into),
        cache: "/tmp/nfcache".into(),
        threads: 1,
    };
    let t = std::time::Instant::now();
    let m = sim::build(&core, None, &options).unwrap_or_else(|e| {
        println!("{e}");
        std::process::exit(1)
    });
    println!("model built in {:?}", t.elapsed());
    let text = std::fs::read("/work/shared/data/tinyshakespeare.txt").unwrap();
    let windows: Vec<Vec<u32>> = (0..steps)
        .map(|k| {
            text[k * 997..][..model.seq_len + 1]
                .iter()
                .map(|c| *c as u32 % model.vocab as u32)
                .collect()
        })
        .collect();
    let t = std::time::Instant::now();
    let r = sim::run(
        &plan,
        &m,
        &State::init(&model),
        &windows,
        &options,
        &mut |s| println!("{s:?}"),
    )
    .unwrap();
    println!("{:?}\n{r:#?}", t.elapsed());
}
