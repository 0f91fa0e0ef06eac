//! A map of all memory blocks of the part.

use super::svg::{Anchor, Svg};
use crate::config::schema::grouped;
use crate::trainer::plan::{MemoryKind, MemoryLine, Plan};

const PALETTE: [&str; 18] = [
    "#3b7dd8", "#7fb0f0", "#e07b39", "#5f9e4f", "#8fc480", "#b5d8a8", "#3f7a70", "#d8d48a",
    "#d79bb8", "#8a63b8", "#c7a23c", "#6b6b6b", "#b8432f", "#12355b", "#f2a65a", "#c0392b",
    "#9b59b6", "#1abc9c",
];
const COLUMNS: usize = 64;
const CELL: f64 = 14.0;
const LEFT: f64 = 20.0;

/// Halves of a block, in the order of the plan's memories: the index of the memory, or none.
fn halves(list: &[(usize, &MemoryLine)], available: usize, per_block: usize) -> Vec<Option<usize>> {
    let mut cells = vec![];
    for (n, memory) in list {
        let used = (memory.blocks * per_block as f64).round() as usize;
        cells.extend(std::iter::repeat_n(Some(*n), used));
    }
    cells.resize((available * per_block).max(cells.len()), None);
    cells
}

/// Block RAM drawn in halves of 18 Kib, UltraRAM in whole blocks, then the memories made of look-up tables.
pub fn picture(plan: &Plan) -> String {
    let of = |kind: MemoryKind| -> Vec<(usize, &MemoryLine)> {
        let lines = plan.memories.iter().enumerate();
        lines.filter(|(_, m)| m.kind == kind).collect()
    };
    let (block, ultra) = (of(MemoryKind::Block), of(MemoryKind::Ultra));
    let available = &plan.target.available;
    // A target without a limit shows what is used.
    let shown = |available: f64, used: f64| {
        if available > 1e6 {
            used
        } else {
            available.max(used)
        }
        .ceil() as usize
    };
    let brams = shown(available.bram36, plan.used.bram36);
    let urams = shown(available.uram, plan.used.uram);
    let rows = brams.div_ceil(COLUMNS);
    let ultra_rows = urams.div_ceil(COLUMNS / 2);
    let lines = plan.memories.len();
    let ultra_top = 74.0 + rows as f64 * CELL + 24.0;
    let legend_top = ultra_top
        + if urams > 0 {
            ultra_rows as f64 * 2.0 * CELL + 30.0
        } else {
            0.0
        };
    let width = 2.0 * LEFT + COLUMNS as f64 * CELL;
    let mut svg = Svg::new(width, legend_top + lines.div_ceil(2) as f64 * 18.0 + 16.0);
    svg.text(
        (LEFT, 26.0),
        Anchor::Start,
        15,
        &format!(
            "Memory of {} on {} (planned)",
            plan.model.name, plan.target.name
        ),
    );
    svg.text((LEFT, 50.0), Anchor::Start, 12, &format!(
        "Block RAM: {} of {} blocks of 36 Kib; each cell is one block, drawn in two halves of 18 Kib",
        plan.used.bram36,
        if available.bram36 > 1e6 { "any number".to_string() } else { grouped(available.bram36 as u64) }
    ));
    let fill = |memory: Option<usize>| memory.map_or("#ececec", |n| PALETTE[n % PALETTE.len()]);
    let mut by_colour: Vec<(&str, Vec<[f64; 4]>)> = vec![];
    let mut add =
        |fill: &'static str, rect: [f64; 4]| match by_colour.iter_mut().find(|(f, _)| *f == fill) {
            Some((_, list)) => list.push(rect),
            None => by_colour.push((fill, vec![rect])),
        };
    for (i, memory) in halves(&block, brams, 2).into_iter().enumerate() {
        let (cell, half) = (i / 2, i % 2);
        // Column by column, as the blocks of a part stand.
        let (column, row) = (cell / rows.max(1), cell % rows.max(1));
        let x = LEFT + column as f64 * CELL + half as f64 * (CELL - 2.0) / 2.0;
        add(
            fill(memory),
            [x, 62.0 + row as f64 * CELL, (CELL - 2.0) / 2.0, CELL - 2.0],
        );
    }
    if urams > 0 {
        svg.text(
            (LEFT, ultra_top),
            Anchor::Start,
            12,
            &format!(
                "UltraRAM: {} of {} blocks of 288 Kib",
                plan.used.uram,
                grouped(available.uram as u64)
            ),
        );
        for (i, memory) in halves(&ultra, urams, 1).into_iter().enumerate() {
            let (column, row) = (i / ultra_rows.max(1), i % ultra_rows.max(1));
            let x = LEFT + column as f64 * 2.0 * CELL;
            let y = ultra_top + 8.0 + row as f64 * 2.0 * CELL;
            add(fill(memory), [x, y, 2.0 * CELL - 2.0, 2.0 * CELL - 2.0]);
        }
    }
    for (fill, list) in &by_colour {
        svg.rects(fill, list);
    }
    for (n, memory) in plan.memories.iter().enumerate() {
        let (column, row) = (n % 2, n / 2);
        let x = LEFT + column as f64 * (width - 2.0 * LEFT) / 2.0;
        let y = legend_top + 10.0 + row as f64 * 18.0;
        let size = match memory.kind {
            MemoryKind::Block => format!("{} blocks", memory.blocks),
            MemoryKind::Ultra => format!("{} UltraRAM", memory.blocks),
            MemoryKind::Distributed => format!("{} look-up tables", grouped(memory.luts as u64)),
        };
        let shown = if memory.kind == MemoryKind::Distributed {
            "#fff"
        } else {
            fill(Some(n))
        };
        svg.rect((x, y - 9.0), (10.0, 10.0), shown);
        svg.text(
            (x + 15.0, y),
            Anchor::Start,
            11,
            &format!(
                "{}: {} banks of {} x {} bits, {size}",
                memory.name,
                memory.banks,
                grouped(memory.depth as u64),
                memory.width
            ),
        );
    }
    svg.finish()
}
