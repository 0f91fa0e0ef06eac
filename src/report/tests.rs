use super::*;
use crate::config::{self, Device};
use crate::trainer::plan::{Options, Plan, Target};

fn plan() -> Plan {
    let model = config::load_model("tiny", &[]).expect("built in");
    let device = Device {
        name: "board <1>".into(),
        lut: 1_000_000,
        ff: 1_000_000,
        dsp: 10_000,
        bram36: 100,
        distributed_ram_bits: 100_000_000,
        ..Device::boundless()
    };
    let target = Target::of(&device, 100);
    let options = Options {
        array: Some(4),
        ..Options::default()
    };
    Plan::new(&model, &target, &options).expect("plans")
}

fn text<'a>(files: &'a [(&str, String)], name: &str) -> &'a str {
    let found = files.iter().find(|(n, _)| *n == name);
    &found.expect("in the report").1
}

#[test]
fn the_page_names_every_kind_and_escapes_names() {
    let plan = plan();
    let sim = serde_json::json!({"cycles_per_step": 4321.0, "steps": 3, "verdict": "match", "words_compared": 99, "mismatches": 0});
    let synth = serde_json::json!({"lut": {"synthesised": 12345}, "levels": 7, "modules": []});
    let sources = Sources {
        plan: &plan,
        synth: Some(&synth),
        sim: Some(&sim),
        timeline: None,
        rtl_sha256: "abc",
    };
    let files = files(&sources);
    let page = text(&files, "index.html");
    assert!(page.contains("tiny on board &lt;1&gt;") && !page.contains("board <1>"));
    assert!(page.contains("4,321") && page.contains("12,345") && page.contains("match"));
    for memory in &plan.memories {
        assert!(page.contains(&memory.name), "{}", memory.name);
    }
    for (name, _) in &files[1..] {
        assert!(page.contains(&format!("src=\"{name}\"")), "{name}");
    }
}

#[test]
fn the_memory_map_has_a_cell_for_every_half_block() {
    let plan = plan();
    let map = memory::picture(&plan);
    let cells = map.matches("h6v12h-6z").count();
    assert_eq!(cells, 200, "100 blocks of two halves");
    let used: f64 = plan.memories.iter().map(|m| m.blocks).sum();
    let free = map
        .lines()
        .find(|l| l.contains("fill=\"#ececec\""))
        .map_or(0, |l| l.matches("h6v12h-6z").count());
    assert_eq!(free, 200 - (2.0 * used) as usize);
}

#[test]
fn the_gantt_covers_what_each_engine_does() {
    let plan = plan();
    let alone = gantt::picture(&plan, None);
    let both = gantt::picture(&plan, Some(&plan.timeline));
    for name in ["array", "vector unit", "Adam unit", "forward", "backward"] {
        assert!(alone.contains(name), "{name}");
    }
    assert_eq!(alone.matches(">Adam unit<").count(), 2);
    assert_eq!(both.matches(">Adam unit<").count(), 4);
    // Array, vector unit and Adam unit all draw in the overview.
    for kind in ["forward", "gradient", "adam"] {
        assert!(
            alone.contains(&format!("<path fill=\"{}\"", colour(kind))),
            "{kind}"
        );
    }
}

#[test]
fn buffers_stand_inside_their_group() {
    let plan = plan();
    let picture = activations::picture(&plan);
    assert_eq!(picture.matches("<title>").count(), plan.buffers.len());
    for b in &plan.buffers {
        assert!(
            b.base + b.words <= plan.shape.group_depth[b.group],
            "{}",
            b.name
        );
    }
}

#[test]
fn axis_steps_are_round() {
    for (range, parts, expected) in [
        (263_903.0, 10.0, 50_000.0),
        (9.0, 10.0, 1.0),
        (120.0, 10.0, 20.0),
    ] {
        assert_eq!(svg::step(range, parts), expected);
    }
}
