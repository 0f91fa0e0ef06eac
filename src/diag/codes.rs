//! The catalogue of diagnostic codes. `nfgen explain CODE` prints an entry; a test checks that every code used
//! in the sources is listed here and that no entry is left without a use.

/// One code and its documentation.
#[derive(Debug)]
pub struct Code {
    pub name: &'static str,
    /// One line: what went wrong.
    pub title: &'static str,
    /// Why it is refused, and what to do.
    pub text: &'static str,
}

const fn code(name: &'static str, title: &'static str, text: &'static str) -> Code {
    Code { name, title, text }
}

/// Every code, sorted by name.
pub const ALL: &[Code] = &[
    code(
        "nf::bitnet::array",
        "the array or its simulation refused or failed",
        "The message names the size or the simulator's complaint. A build is chosen by --rows, \
         --ports, --lmm-words and --lane-sign; the RTL backend needs Verilator on the PATH.",
    ),
    code(
        "nf::bitnet::bad_file",
        "a GGUF file is damaged or holds impossible data",
        "The message names the tensor or key and the byte. Truncated downloads, reserved trit codes, overlapping \
         tensors and counts that exceed the file are found before anything is computed.",
    ),
    code(
        "nf::bitnet::program",
        "a program of the array cannot be read or run",
        "The message names the line or the group, what was found and what is accepted; docs/cgla.md describes the \
         text form. A program that would wait for ever, address what is not there or store another number of words \
         than `results` is found before it runs.",
    ),
    code(
        "nf::bitnet::refused",
        "a file or an argument is understood but not accepted",
        "The message names what was found and what is accepted: architectures, tensor types, row lengths, ternary \
         weights, one weight scale per row, finite activations.",
    ),
    code(
        "nf::cli::unknown_code",
        "explain was asked about a code that does not exist",
        "`nfgen explain` without an argument lists all codes.",
    ),
    code(
        "nf::cli::usage",
        "the command line could not be understood",
        "`nfgen VERB --help` shows the arguments of a verb with examples.",
    ),
    code(
        "nf::config::missing_key",
        "a key without a default is not given",
        "A model file must state its shape (vocab, seq_len, embed_dim, heads, ff_dim, layers); a device file must state \
         its part and its resources. Everything else has a default. `nfgen check` prints all keys with their values.",
    ),
    code(
        "nf::config::not_a_choice",
        "a key takes one of a few words, and this is another",
        "The help line lists the words. They are lower case.",
    ),
    code(
        "nf::config::out_of_range",
        "a number lies outside what the key accepts",
        "The help line gives the range. Real numbers are checked after conversion to FP32, because that is what the \
         machine computes with: an Adam beta of 0.99999999 is 1 in FP32 and is refused.",
    ),
    code(
        "nf::config::set_syntax",
        "a --set argument is not key=value",
        "Write `--set heads=4`, once per key. Values are written as in TOML; the quotes of a word may be left out.",
    ),
    code(
        "nf::config::syntax",
        "the file is not valid TOML",
        "The place shows where the reader stopped to understand the text. A key may be given once.",
    ),
    code(
        "nf::config::unknown_device",
        "no device of that name is in the catalogue, and no file of that name exists",
        "`nfgen devices` lists the catalogue. A device of your own is a TOML file: `--device my_board.toml`. \
         `nfgen devices zcu102 --toml` prints an entry to start from.",
    ),
    code(
        "nf::config::unknown_key",
        "a key that means nothing here",
        "Keys are checked so that a misspelt one cannot be ignored in silence. The help line names the nearest key, or all of them.",
    ),
    code(
        "nf::config::unknown_model",
        "no built-in model of that name exists, and no file of that name either",
        "Built-in models are listed by `nfgen check --help`. A model of your own is a TOML file: `--model my_model.toml`. \
         `nfgen check --model small --toml` prints one to start from.",
    ),
    code(
        "nf::config::wrong_type",
        "a value has the wrong TOML type",
        "Counts are integers, rates are numbers, formats are words in quotes.",
    ),
    code(
        "nf::emit::bad_path",
        "a generated file has an impossible path",
        "Paths of generated files are relative, stay inside the output folder and are unique. Module names become file names.",
    ),
    code(
        "nf::emit::bad_text",
        "a name cannot be written into a script",
        "Names of designs, devices and parts go into Tcl, C, Python, YAML and make files. Characters that would need another \
         quoting in each of them are refused.",
    ),
    code(
        "nf::emit::foreign_folder",
        "the output folder holds files that nfgen did not write",
        "A folder is taken over only when it is empty or has a manifest.json of an earlier emission, so that a wrong -o cannot \
         overwrite anything of yours.",
    ),
    code(
        "nf::emit::internal",
        "a planned machine could not be built",
        "The netlist's own checks (widths, drivers, names, loops) refused a machine that the planner had accepted. This is a \
         fault of nfgen.",
    ),
    code(
        "nf::emit::wrong_ports",
        "the top module's ports are not those of its interface",
        "The IP packager, the simulation harness and the drivers find a core's buses by their port names: aclk, aresetn, \
         s_axil_*, s_axis_<name>_t*, m_axis_<name>_t*, irq. A top module with other ports is refused before anything is written.",
    ),
    code(
        "nf::io::cannot_read",
        "a file could not be read",
        "The message carries the system's reason.",
    ),
    code(
        "nf::io::cannot_write",
        "a file or folder could not be written",
        "Files are staged under other names and renamed when all of them are complete, so nothing half-written is left.",
    ),
    code(
        "nf::model::accumulator_length",
        "a dot product is longer than the exact accumulator holds",
        "Products are 34 bits and a sign; a 48-bit accumulator holds sums of 8,192 of them without loss \
         (docs/arithmetic.md section 2). The longest sums of a model run over vocab, seq_len, embed_dim, ff_dim and 3*embed_dim. \
         `compute = \"fp32\"` has no such limit, but exists in the reference only.",
    ),
    code(
        "nf::model::heads_divide",
        "the number of heads does not divide embed_dim",
        "Each head works on embed_dim / heads columns, which must be a whole number.",
    ),
    code(
        "nf::model::reference_only",
        "the model uses a format that exists in the reference trainer only",
        "`compute = \"fp32\"` and `weight_format = \"fp32\"` are yardsticks of accuracy: `train` and `eval` take them, `plan`, `emit` and `sim` refuse them.",
    ),
    code(
        "nf::model::small_layers",
        "the vocabulary leaves the layers few parameters",
        "Section 4 of the NeuronFabric paper: below 20,000 parameters outside the embedding table a model produces recognisable \
         words in incoherent order, from about 80,000 on recognisable structure. A smaller vocabulary or a narrower \
         embedding leaves more of the budget to the layers.",
    ),
    code(
        "nf::model::too_large",
        "the model has more parameters than its random-bit counter can number",
        "Stochastic rounding draws its bits from a counter with a 32-bit element number (docs/arithmetic.md section 5).",
    ),
    code(
        "nf::plan::does_not_fit",
        "the model does not fit the device",
        "The planner has tried every array size and memory plan that it knows. The message says which resource is short by how \
         much for the plan that misses by least; the help line names the nearest change of the model that fits. LUTs count as \
         short above 85 % of the device, since place and route seldom fill more.",
    ),
    code(
        "nf::plan::impossible_machine",
        "an option asks for a machine that cannot be built",
        "--array, --adam-lanes and --groups fix parts of the machine. Adam lanes must share the array's rows evenly, because each \
         lane owns its banks.",
    ),
    code(
        "nf::plan::no_machine",
        "no machine exists for this model on any device",
        "Some formats and sizes exist in the reference trainer only. The message names the one.",
    ),
    code(
        "nf::reference::corpus",
        "the text cannot be trained or evaluated on as asked",
        "It may be empty or too short, hold a byte at or above the vocabulary, or differ from the text that a resumed \
         run was started with (the checkpoint keeps the text's SHA-256).",
    ),
    code(
        "nf::reference::file",
        "a file of the reference trainer cannot be read or written, or is damaged",
        "Checkpoints are checked completely before use: header, version, names, shapes, sizes and numbers. They are \
         written under another name and renamed, so an interrupted write leaves the old file.",
    ),
    code(
        "nf::reference::invalid",
        "an argument or a state does not make sense to the reference trainer",
        "The message says which value, and what would be accepted.",
    ),
    code(
        "nf::reference::not_finite",
        "a step produced an infinity or NaN",
        "Training diverged or the state was damaged. The state after such a step is not usable; the last checkpoint is.",
    ),
    code(
        "nf::reference::state",
        "a tensor of a checkpoint does not fit the model",
        "Formats may be changed with --set when a checkpoint is loaded; its shape may not.",
    ),
    code(
        "nf::reference::token",
        "a token lies outside the vocabulary",
        "Tokens are bytes; each must be below the model's vocab.",
    ),
    code(
        "nf::reference::too_long",
        "a dot product would be longer than is exact",
        "Sums of at most 8192 products of two 18-bit integers are exact in the 48-bit accumulator.",
    ),
    code(
        "nf::reference::window_length",
        "a window has the wrong number of tokens",
        "A training window has seq_len + 1 tokens: the inputs and, shifted by one, their targets.",
    ),
    code(
        "nf::report::input",
        "a file for the report cannot be read or belongs to another design",
        "A report shows one design. The objects of `synth` and `sim` carry the hash of their Verilog, and it must be the \
         one that the same options emit.",
    ),
    code(
        "nf::sim::build",
        "Verilator refused the design",
        "Usually the Verilog given with --rtl has an error; Verilator's own messages follow, and the whole log is kept.",
    ),
    code(
        "nf::sim::cache",
        "the folder of built models cannot be used",
        "Models are built once and kept by the hash of their sources. --cache DIR or NFGEN_CACHE chooses the folder.",
    ),
    code(
        "nf::sim::hung",
        "the simulated design stopped answering",
        "A stream or register access made no progress within a limit that follows from the size of the model, or the design \
         broke a rule of AXI. A design emitted by nfgen must not; one changed by hand may.",
    ),
    code(
        "nf::sim::reference",
        "the reference refused a sample",
        "The reference trainer runs beside the simulation and checks its input the same way.",
    ),
    code(
        "nf::sim::rtl",
        "the folder of --rtl cannot be read or holds no Verilog",
        "--rtl wants the rtl folder of an emitted design; memory files come from the plan.",
    ),
    code(
        "nf::sim::stalls",
        "the stall probability is out of range",
        "--stalls is the probability, per cycle, that a source idles or a sink is busy. At 1 nothing would ever move.",
    ),
    code(
        "nf::sim::tool",
        "Verilator is missing or too old",
        "Simulation needs Verilator 5.006 or newer on the PATH. `make tools` installs what is missing on Debian.",
    ),
    code(
        "nf::sim::wrong_core",
        "the Verilog belongs to another plan",
        "BUILD_ID identifies model, shape and programs. --rtl simulates Verilog that was emitted for the same ones.",
    ),
    code(
        "nf::sweep::file",
        "a sweep file, a job or a folder of results cannot be used",
        "A sweep file is TOML with the lists models and devices, and optionally array, adam_lanes, groups, clock_mhz, synth \
         and a table [set] of model keys. Jobs and results are JSON, written by `nfgen sweep`.",
    ),
    code(
        "nf::synth::cache",
        "the folder of synthesised modules cannot be used",
        "Modules are synthesised once and kept by the hash of their sources. --cache DIR or NFGEN_CACHE chooses the folder.",
    ),
    code(
        "nf::synth::family",
        "the synthesiser does not know the part's family",
        "Yosys maps to UltraScale+ and 7 series parts. A design for another family can be planned, emitted and simulated.",
    ),
    code(
        "nf::synth::refused",
        "Yosys refused a module",
        "Its last lines follow. The emitted Verilog is meant to pass; a memory that exceeds the compiler's limits may not.",
    ),
    code(
        "nf::synth::tool",
        "Yosys is missing or another release",
        "Figures of different releases differ by more than the tolerance of the comparison, so one is pinned: the Python \
         package pyosys 0.70. scripts/install-tools --synth installs it for this folder alone.",
    ),
    code(
        "nf::synth::unknown_module",
        "--modules names a module that the design does not have",
        "The help line lists the modules of the design; they depend on the model's sizes and on the array.",
    ),
];

/// The entry of a code; the leading `nf::` may be left out.
pub fn find(name: &str) -> Option<&'static Code> {
    ALL.iter()
        .find(|code| code.name == name || code.name.strip_prefix("nf::") == Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalogue_is_sorted_and_documented() {
        assert!(ALL.windows(2).all(|pair| pair[0].name < pair[1].name));
        for code in ALL {
            assert!(code.name.starts_with("nf::"), "{}", code.name);
            assert!(
                code.title.len() > 10 && code.text.len() > 20,
                "{}",
                code.name
            );
        }
    }

    #[test]
    fn codes_are_found_with_and_without_prefix() {
        assert!(find("nf::model::heads_divide").is_some());
        assert!(find("model::heads_divide").is_some());
        assert!(find("heads_divide").is_none());
    }
}
